package timeline

import (
	"database/sql"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestTheNewestTimelineOfASystem(t *testing.T) {
	one, another := new(sql.DB), new(sql.DB)
	for _, c := range []struct {
		db       *sql.DB
		system   int64
		timeline uint32
		newest   uint32
	}{
		{one, 7, 1, 1},
		{one, 7, 3, 3},
		{one, 7, 2, 3},
		{one, 7, 3, 3},
		{one, -7, 1, 1}, // pointed to another system, such as the result of pg_upgrade
		{one, 7, 1, 3},
		{another, 7, 1, 1}, // another pool cannot know
		{nil, 7, 1, 1},
	} {
		if newest := Note(c.db, c.system, c.timeline); newest != c.newest {
			t.Errorf("system %d, timeline %d: %d, want %d", c.system, c.timeline, newest, c.newest)
		}
	}
	runtime.KeepAlive(one)
	runtime.KeepAlive(another)
}

func TestNoteAtOnce(t *testing.T) {
	db := new(sql.DB)
	var wg sync.WaitGroup
	for i := range uint32(100) {
		wg.Go(func() {
			if newest := Note(db, 1, i); newest < i {
				t.Errorf("%d after %d was noted", newest, i)
			}
		})
	}
	wg.Wait()
	if newest := Note(db, 1, 0); newest != 99 {
		t.Errorf("%d", newest)
	}
}

// The memory ends with the pool.
func TestAForgottenPool(t *testing.T) {
	count := func() (n int) {
		pools.Range(func(any, any) bool { n++; return true })
		return n
	}
	runtime.GC()
	before := count()
	func() {
		for range 10 {
			Note(&sql.DB{}, 1, 1)
		}
	}()
	for end := time.Now().Add(30 * time.Second); count() > before; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d pools are remembered, %d before", count(), before)
		}
		time.Sleep(time.Millisecond)
	}
}
