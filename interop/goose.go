package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Goose returns the key that the session locker of goose (github.com/pressly/goose) locks by
// default, from version 3.26 on. A program may choose another one with lock.WithLockID. The
// goose command takes no lock, and the table locker locks no key.
func Goose() advisory.Key { return advisory.Int64(4097083626) }

// GooseBefore326 returns the key that goose locks by default in versions before 3.26. Those
// versions do not exclude later ones: lock both keys while both versions are in use.
func GooseBefore326() advisory.Key { return advisory.Int64(5887940537704921958) }
