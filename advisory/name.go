package advisory

import (
	"crypto/sha256"
	"encoding/binary"
)

// Name returns a key of the bigint space for a name of one or more parts, such
// as Name("account", id). Where the parts are divided matters: ("a", "bc") and
// ("ab", "c") are different keys, and so are ("a", "b") and ("b", "a").
//
// No part at all, or an empty one, gives the zero Key, which every call refuses:
// an id that is missing by mistake must not become one lock for everybody.
//
// Parts are bytes: case, white space and Unicode normalization make a difference.
// Two names have the same key with a chance of one in 2^64; among a million
// names the chance that any two do is less than one in ten million.
//
// The key of a name never changes: it is the first eight bytes, as a big-endian
// signed number, of the SHA-256 of all parts, each preceded by its length in
// bytes as eight bytes, big-endian. In SQL, for ("billing", "eu"):
//
//	SELECT ('x' || encode(substr(sha256(
//	           int8send(octet_length('billing')) || convert_to('billing', 'UTF8') ||
//	           int8send(octet_length('eu')) || convert_to('eu', 'UTF8')
//	       ), 1, 8), 'hex'))::bit(64)::bigint;
func Name(parts ...string) Key {
	if len(parts) == 0 {
		return Key{}
	}
	var buf [128]byte // no allocation for names of a usual length
	b := buf[:0]
	for _, p := range parts {
		if p == "" {
			return Key{}
		}
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	return Int64(int64(binary.BigEndian.Uint64(sum[:8])))
}
