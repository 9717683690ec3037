package advisory

// A Key names a lock. Keys are comparable, and small enough to pass by value.
//
// PostgreSQL has two separate key spaces: one bigint ([Int64], which [Name], [HashText] and
// [HashTextExtended] return too), and a pair of int4 ([Pair]). A key belongs to one database: the
// same key in another database of the server is another lock.
//
// The zero Key is in neither space. Every call refuses it with [ErrInvalidKey].
type Key struct {
	space uint8 // 0: invalid; else objsubid in pg_locks
	n     int64 // for a pair: class in the upper, object in the lower 32 bits
}

const (
	bigintSpace uint8 = iota + 1
	pairSpace
)

// Int64 returns the key n of the bigint key space. Every n is a key, including 0.
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

// IsZero reports whether k is the zero Key, which no call accepts. [Name] returns it for a missing
// part. Int64(0) and Pair(0, 0) are not zero.
func (k Key) IsZero() bool { return k == Key{} }
