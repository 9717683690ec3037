package advisory

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// HashText returns the key hashtext(s)::bigint, computed without the server. Programs that run
// pg_advisory_lock(hashtext('s')) lock this key. It has 32 bits, so among 80,000 texts two are
// likely to share a key. For keys of your own use [Name].
//
// The server computes the same key under three conditions:
//
//   - The encoding of the database is UTF8.
//   - The collation is deterministic. It is, unless it was created otherwise.
//   - The machine is little-endian, as x86 and ARM are.
//
// PostgreSQL does not guarantee that hashtext stays as it is, but has not changed it from version 10
// to 18.
//
// The empty text has a key too. A text that PostgreSQL cannot store, because it contains a NUL byte
// or is not valid UTF-8, gives the zero Key. Every call refuses the zero Key.
//
// For the second number of a pair, as in pg_advisory_lock(1, hashtext('s')):
//
//	n, _ := HashText(s).Int64()
//	key := Pair(1, int32(n))
func HashText(s string) Key {
	if !isText(s) {
		return Key{}
	}
	// hash_any is the lower half of hash_any_extended without a seed.
	return Int64(int64(int32(hashAny(s, 0))))
}

// HashTextExtended returns the key hashtextextended(s, seed), computed without the server. It has all
// 64 bits. The conditions on servers and texts are those of [HashText].
func HashTextExtended(s string, seed int64) Key {
	if !isText(s) {
		return Key{}
	}
	return Int64(int64(hashAny(s, uint64(seed))))
}

// isText reports whether a PostgreSQL text can hold s.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// hashAny is PostgreSQL's hash_any_extended (src/common/hashfn.c), which is Bob
// Jenkins' lookup3, read as little-endian and with constants of its own.
func hashAny(s string, seed uint64) uint64 {
	a := 0x9e3779b9 + uint32(len(s)) + 3923095
	b, c := a, a
	if seed != 0 {
		a += uint32(seed >> 32)
		b += uint32(seed)
		a, b, c = mix(a, b, c)
	}
	var block [12]byte
	for ; len(s) >= len(block); s = s[len(block):] {
		copy(block[:], s)
		a, b, c = mix(add(a, b, c, &block))
	}
	// The lowest byte of c belongs to the length, so the last word has room for
	// three bytes of text.
	block = [12]byte{}
	n := copy(block[:8], s)
	copy(block[9:], s[n:])
	b, c = final(add(a, b, c, &block))
	return uint64(b)<<32 | uint64(c)
}

// add adds a block, as three little-endian words.
func add(a, b, c uint32, block *[12]byte) (uint32, uint32, uint32) {
	return a + binary.LittleEndian.Uint32(block[0:]),
		b + binary.LittleEndian.Uint32(block[4:]),
		c + binary.LittleEndian.Uint32(block[8:])
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - c) ^ bits.RotateLeft32(c, 4)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 6)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 8)
	b += a
	a = (a - c) ^ bits.RotateLeft32(c, 16)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 19)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 4)
	b += a
	return a, b, c
}

func final(a, b, c uint32) (uint32, uint32) {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return b, c
}
