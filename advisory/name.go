package advisory

import (
	"crypto/sha256"
	"encoding/binary"
)

// Name returns a key of the bigint space for a name of one or more parts, such as Name("account",
// id). The division into parts matters: ("a", "bc") and ("ab", "c") are different keys, and so are
// ("a", "b") and ("b", "a").
//
// Without parts, or with an empty part, Name returns the zero Key, which every call refuses. So an id
// that is missing by mistake does not become one lock for everybody.
//
// Parts are bytes: case, white space and Unicode normalization make a difference. Two names share a
// key with a probability of one in 2^64. Among a million names the probability that any two share
// one is less than one in ten million.
//
// The key of a name never changes. It is the first eight bytes of a SHA-256, as a big-endian signed
// number. The hashed text is all parts, each preceded by its length in bytes as eight bytes,
// big-endian. In SQL, for ("billing", "eu"):
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
