// Package timeline remembers the newest timeline that the connections of each pool have led to. A
// promotion begins a greater timeline of the same system, so a primary on a smaller one is an old
// primary.
package timeline

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

// pools has a *systems for each pool, by weak.Pointer[sql.DB].
var pools sync.Map

// systems has the newest timeline of each system, by its identifier. A pool leads to one system,
// unless it is pointed to another.
type systems struct {
	mu     sync.Mutex
	newest map[int64]uint32
}

// Note notes that a connection of db leads to a primary of a system on a timeline. It returns the
// newest timeline of that system that connections of db have led to, which is greater than timeline on
// an old primary. All users of db share this memory, for as long as db lives.
func Note(db *sql.DB, system int64, timeline uint32) (newest uint32) {
	if db == nil {
		return timeline
	}
	w := weak.Make(db)
	v, known := pools.Load(w)
	if !known {
		if v, known = pools.LoadOrStore(w, &systems{newest: map[int64]uint32{}}); !known {
			runtime.AddCleanup(db, func(w weak.Pointer[sql.DB]) { pools.Delete(w) }, w)
		}
	}
	s := v.(*systems)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest[system] = max(s.newest[system], timeline)
	return s.newest[system]
}
