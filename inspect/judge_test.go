package inspect

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// leak is a session that has been idle with two keys; hidden is what of it may not be seen.
func leak(pid int, hidden ...string) []Lock {
	l := Lock{PID: pid, Granted: true, State: "idle", StateSince: time.Unix(1e9, 0), StateAge: time.Hour, Hidden: hidden}
	a, b := l, l
	a.Key, b.Key = advisory.Int64(int64(2*pid)), advisory.Int64(int64(2*pid+1))
	return []Lock{a, b}
}

// Without the names of roles, as with a full lock table, a leak is still reported.
func TestLeakWithoutTheNameOfItsRole(t *testing.T) {
	list := judge(leak(1, "user"), place{}, time.Minute)
	if len(list) != 1 || list[0].Kind != Leak || list[0].PID != 1 || !strings.Contains(list[0].SQL, "FROM pg_catalog.pg_stat_get_activity(NULL) WHERE pid = 1 AND state_change = ") {
		t.Errorf("%v", list)
	}
	list = judge(leak(1, "client", "state"), place{Role: "app"}, time.Minute)
	if len(list) != 1 || list[0].Kind != Unseen {
		t.Errorf("%v", list)
	}
}

func TestPageSaysWhatItLacks(t *testing.T) {
	var locks []Lock
	for pid := 1; pid <= maxCards+2; pid++ {
		locks = append(locks, leak(pid, "user")...)
	}
	show := func(locks []Lock) string {
		var b bytes.Buffer
		s := &snapshot{Locks: locks, Suspects: judge(locks, place{}, time.Minute)}
		if err := pageTemplate.Execute(&b, newPage(s, 0, "")); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const full, rights, more = "lock table is full", "pg_read_all_stats", "2 more are left out"
	for _, c := range []struct {
		locks []Lock
		words []string
	}{
		{locks, []string{full, more}},
		{leak(1, "client", "state"), []string{rights}},
		{leak(1), nil},
	} {
		body := show(c.locks)
		for _, w := range []string{full, rights, more} {
			if want := slices.Contains(c.words, w); strings.Contains(body, w) != want {
				t.Errorf("%q is there: %v, with %d locks", w, !want, len(c.locks))
			}
		}
	}
}
