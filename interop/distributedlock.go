package interop

import (
	"crypto/sha1"
	"encoding/binary"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// DistributedLockASCII returns the key that new PostgresAdvisoryLockKey(name) of DistributedLock for
// .NET computes from a name of at most 9 ASCII characters. For other names it returns the zero Key,
// which no call accepts: use [DistributedLockHash] for those.
func DistributedLockASCII(name string) advisory.Key {
	const most = 9
	if len(name) > most {
		return advisory.Key{}
	}
	var n uint64
	for i := range len(name) {
		if name[i] > 0x7f {
			return advisory.Key{}
		}
		n = n<<7 | uint64(name[i])
	}
	// A 0, followed by 1s up to the end, encodes the length of the name.
	n <<= 1
	for range 63 - 7*len(name) {
		n = n<<1 | 1
	}
	return advisory.Pair(int32(n>>32), int32(n))
}

// DistributedLockHash returns the key that new PostgresAdvisoryLockKey(name, allowHashing: true) of
// DistributedLock for .NET computes from a name that is longer than 9 characters, or not ASCII. That
// class does not hash a name of 16 hexadecimal digits, or of twice 8 with a comma between them: it
// reads such a name as a number.
func DistributedLockHash(name string) advisory.Key {
	sum := sha1.Sum([]byte(name))
	return advisory.Int64(int64(binary.LittleEndian.Uint64(sum[:])))
}
