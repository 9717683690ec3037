package exclusion_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Whatever befalls processes, connections and the server, nobody holds a lock beside
// another: up to its release or to the end of its server session, whichever is first; and
// where the server does not learn of a loss first, up to the end of its Context. The tokens
// grow. How late a loss is told is looked at apart.
//
// Processes take locks in all ways, write down what they got, and are checked afterwards.
// PGADVISORY_EXCLUSION says for how long it goes on.
func TestExclusion(t *testing.T) {
	pgtest.Slow(t)
	length := 30 * time.Second
	if v := os.Getenv("PGADVISORY_EXCLUSION"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil || length <= 0 {
			t.Fatalf("PGADVISORY_EXCLUSION=%q is not a time", v)
		}
	}
	a := newArena(t)
	for i := range 6 {
		a.rivals = append(a.rivals, a.newRivals(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	clock, start := time.Now().Round(0), time.Now()
	a.strike(ctx)
	for _, r := range a.rivals {
		fmt.Fprintln(r.peer.In, "end")
	}
	for _, r := range a.rivals {
		r.peer.Says("has ended", 2*harness.Patience)
	}
	a.watch.Reconnect()
	a.watch.NoLocks(t)
	if moved := (time.Now().Round(0).Sub(clock) - time.Since(start)).Abs(); moved > time.Millisecond {
		t.Fatalf("this machine's clock was set meanwhile, by %v: run it again", moved)
	}
	a.judge(length)
}

// judge checks the history.
func (a *arena) judge(length time.Duration) {
	a.Helper()
	var holds []history.Hold
	var wrong []error
	for _, book := range a.books {
		h, w, err := history.Read(book)
		if err != nil {
			a.Fatal(err)
		}
		holds, wrong = append(holds, h...), append(wrong, w...)
	}
	lag := a.lag.Get()
	var faults []history.Fault
	byKind := map[string]int{}
	for _, f := range a.faults {
		byKind[f.Kind]++
		if f.due != 0 { // a busy machine may be slow
			f.Due = f.done.After(f.due + time.Second + 2*lag)
		}
		faults = append(faults, f.Fault)
	}
	wrong = append(wrong, history.Check(holds, faults)...)
	losses, late := history.Told(holds, faults)
	wrong = append(wrong, late...)
	for i, err := range wrong {
		if i == 20 {
			a.Errorf("and %d more", len(wrong)-i)
			break
		}
		a.Error(err)
	}

	byWay, alone, beside, tokens := map[string]int{}, 0, 0, 0
	for _, h := range holds {
		byWay[h.How]++
		if h.Shared {
			beside++
		} else {
			alone++
		}
		if h.Token != 0 {
			tokens++
		}
	}
	a.Logf("%v, %d processes: %d holds, %d exclusive and %d shared, %d with tokens; this machine was late by up to %v",
		length, len(a.books), len(holds), alone, beside, tokens, lag.Round(time.Millisecond))
	a.Logf("by call: %s", counts(byWay))
	a.Logf("faults: %s", counts(byKind))
	for _, w := range ways {
		if byWay[w.name] == 0 {
			a.Errorf("never: %s", w.name)
		}
	}
	if len(losses) == 0 {
		a.Error("no lock was lost")
	}
	lateness := map[string][]time.Duration{}
	for _, l := range losses {
		kind := "no fault that was to be noticed"
		if l.Fault != nil {
			kind = l.Fault.Kind
		}
		lateness[kind] = append(lateness[kind], l.Late)
	}
	for _, kind := range slices.Sorted(maps.Keys(lateness)) {
		all := lateness[kind]
		slices.Sort(all)
		a.Logf("losses told, %s: %d, late by %v in the median, %v at the most", kind, len(all),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	if a.Failed() {
		a.keep()
	}
}

// counts are in the order of the numbers.
func counts(of map[string]int) string {
	var list []string
	for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], strings.Compare(a, b)) }) {
		list = append(list, fmt.Sprintf("%s %d", k, of[k]))
	}
	return strings.Join(list, ", ")
}

// keep keeps the books, where a folder for that is named.
func (a *arena) keep() {
	dir := os.Getenv("PGADVISORY_EXCLUSION_BOOKS")
	if dir == "" {
		return
	}
	for _, book := range a.books {
		if err := os.Link(book, filepath.Join(dir, filepath.Base(book))); err != nil {
			a.Log(err)
		}
	}
}
