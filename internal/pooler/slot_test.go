package pooler

import (
	"database/sql"
	"runtime"
	"testing"
	"time"
)

func TestSlotPerPool(t *testing.T) {
	_, one := newServer(t)
	_, two := newServer(t)
	for _, pool := range []*sql.DB{one, two, nil} {
		first, again := Slot(pool), Slot(pool)
		if first != again {
			t.Error("not one slot for each pool, and for those that are unknown")
		}
	}
	if Slot(one) == Slot(two) || Slot(one) == Slot(nil) {
		t.Error("two pools share a slot")
	}
	if cap(Slot(one)) != 1 || cap(Slot(nil)) != 1 {
		t.Error("a slot has not room for one check")
	}
}

// The slot of a pool that is no more takes no memory.
func TestSlotGoesWithItsPool(t *testing.T) {
	known := func() (n int) {
		slots.Range(func(any, any) bool { n++; return true })
		return n
	}
	before := known()
	func() {
		for range 10 {
			db := sql.OpenDB(&server{})
			Slot(db)
			db.Close()
		}
	}()
	for known() > before {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}
