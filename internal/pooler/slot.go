package pooler

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

var (
	// slots has the slot of each pool, by weak.Pointer[sql.DB].
	slots sync.Map
	// sharedSlot is the slot of all pools that are not known.
	sharedSlot = make(chan struct{}, 1)
)

// Slot returns a channel with room for one check of a pool: a check sends before it begins, and
// receives when it is over. A check needs two connections at once, and several checks of one pool
// could keep those from each other. The check of another pool takes nothing from it.
func Slot(db *sql.DB) chan struct{} {
	if db == nil {
		return sharedSlot
	}
	p := weak.Make(db)
	if slot, known := slots.Load(p); known {
		return slot.(chan struct{})
	}
	slot, known := slots.LoadOrStore(p, make(chan struct{}, 1))
	if !known {
		runtime.AddCleanup(db, func(p weak.Pointer[sql.DB]) { slots.Delete(p) }, p)
	}
	return slot.(chan struct{})
}
