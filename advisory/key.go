package advisory

import "fmt"

// A Key names a lock. Keys are comparable. There are two key spaces, which never
// meet: a bigint, and a pair of int4 (PostgreSQL manual, "Advisory Lock
// Functions"). The zero Key is neither, and every call refuses it with
// [ErrInvalidKey].
type Key struct {
	space uint8 // 0: invalid
	n     int64 // for a pair: class in the upper, object in the lower 32 bits
}

const (
	bigintSpace uint8 = iota + 1
	pairSpace
)

// Int64 returns the key n of the bigint key space.
func Int64(n int64) Key { return Key{bigintSpace, n} }

// Pair returns the key (class, object) of the pair key space. It is never equal
// to a key of the bigint space.
func Pair(class, object int32) Key {
	return Key{pairSpace, int64(class)<<32 | int64(uint32(object))}
}

// Int64 returns the number of a key of the bigint key space; ok is false for
// other keys.
func (k Key) Int64() (n int64, ok bool) {
	if k.space != bigintSpace {
		return 0, false
	}
	return k.n, true
}

// Pair returns the numbers of a key of the pair key space; ok is false for other
// keys.
func (k Key) Pair() (class, object int32, ok bool) {
	if k.space != pairSpace {
		return 0, 0, false
	}
	return int32(k.n >> 32), int32(k.n), true
}

// String returns "4820" or "12:34"; [ParseKey] reads it back. The zero Key is
// "invalid".
func (k Key) String() string {
	if n, ok := k.Int64(); ok {
		return fmt.Sprint(n)
	}
	if class, object, ok := k.Pair(); ok {
		return fmt.Sprintf("%d:%d", class, object)
	}
	return "invalid"
}
