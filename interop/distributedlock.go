package interop

import (
	"crypto/sha1"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// DistributedLock returns the key that new PostgresAdvisoryLockKey(name, allowHashing: true)
// of DistributedLock for .NET makes of a name, as PostgresDistributedSynchronizationProvider
// does. Its form depends on the name:
//
//   - A name of at most 9 ASCII characters is packed into a pair.
//   - 16 hexadecimal digits are a bigint.
//   - Twice 8 hexadecimal digits with a comma between them are a pair.
//   - Any other name is hashed into a bigint. Without allowHashing the constructor refuses it.
//
// Letter case matters except in hexadecimal digits.
func DistributedLock(name string) advisory.Key {
	if key, ok := packASCII(name); ok {
		return key
	}
	if len(name) == 17 && name[8] == ',' {
		if high, low, ok := hexHalves(name[:8], name[9:]); ok {
			return advisory.Pair(int32(high), int32(low))
		}
	}
	if len(name) == 16 {
		if high, low, ok := hexHalves(name[:8], name[8:]); ok {
			return advisory.Int64(int64(uint64(high)<<32 | uint64(low)))
		}
	}
	sum := sha1.Sum([]byte(name))
	return advisory.Int64(int64(binary.LittleEndian.Uint64(sum[:])))
}

func packASCII(name string) (key advisory.Key, ok bool) {
	const most = 9
	if len(name) > most {
		return advisory.Key{}, false
	}
	var n uint64
	for i := range len(name) {
		if name[i] > 0x7f {
			return advisory.Key{}, false
		}
		n = n<<7 | uint64(name[i])
	}
	// A 0, followed by 1s up to the end, encodes the length of the name.
	n <<= 1
	for range 63 - 7*len(name) {
		n = n<<1 | 1
	}
	return advisory.Pair(int32(n>>32), int32(n)), true
}

func hexHalves(a, b string) (high, low uint32, ok bool) {
	high, ok1 := hexHalf(a)
	low, ok2 := hexHalf(b)
	return high, low, ok1 && ok2
}

// hexHalf reads a number as int.TryParse of .NET does, which skips NULs at the end.
func hexHalf(s string) (uint32, bool) {
	s = strings.TrimRight(s, "\x00")
	n, err := strconv.ParseUint(s, 16, 32)
	return uint32(n), err == nil
}
