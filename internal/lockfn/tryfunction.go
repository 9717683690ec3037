package lockfn

import "github.com/pgadvisory/pgadvisory/advisory"

// A TryFunction is one of the eight functions that try to lock: in one of two key spaces and modes, and
// at session or transaction level.
type TryFunction struct {
	Pair, Xact bool
	Mode       advisory.Mode
}

// TryFunctions returns all, those at session level first.
func TryFunctions() (all []TryFunction) {
	for _, xact := range []bool{false, true} {
		for _, m := range []advisory.Mode{advisory.Exclusive, advisory.Shared} {
			all = append(all, TryFunction{false, xact, m}, TryFunction{true, xact, m})
		}
	}
	return all
}

// Key returns a key of the function's space.
func (f TryFunction) Key(n uint64) advisory.Key {
	if f.Pair {
		return advisory.Pair(int32(n>>32), int32(n))
	}
	return advisory.Int64(int64(n))
}

func (f TryFunction) name() string {
	if f.Xact {
		return tryXactFn(f.Mode)
	}
	return tryFn(f.Mode)
}

// String returns the function as it is written in SQL, with the types of its arguments.
func (f TryFunction) String() string { return signature(f.name(), f.Key(1)) }

// Exclusive returns the function of the same space and level for exclusive locks.
func (f TryFunction) Exclusive() TryFunction {
	f.Mode = advisory.Exclusive
	return f
}

// Try calls the function. It returns a row if the key was granted.
func (f TryFunction) Try(k advisory.Key) string { return "SELECT 1 WHERE " + call(f.name(), k) }

// Unlock releases a key that the function has locked at session level.
func (f TryFunction) Unlock(k advisory.Key) string {
	return "SELECT 1 WHERE " + call(unlockFn(f.Mode), k)
}
