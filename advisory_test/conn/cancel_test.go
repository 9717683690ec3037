package conn_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// cancellations is how many calls of each form are cancelled, through each driver:
// few by default, for a quick suite, or PGADVISORY_CANCELLATIONS.
func cancellations(t *testing.T) (n int, all bool) {
	t.Helper()
	const few = 50
	v := os.Getenv("PGADVISORY_CANCELLATIONS")
	if v == "" {
		return few, false
	}
	n, err := strconv.Atoi(v)
	if err != nil || n <= 0 {
		t.Fatalf("PGADVISORY_CANCELLATIONS=%q is not a number of calls", v)
	}
	return n, true
}

// A call whose ctx or MaxWait ends around the moment of the grant leaves no lock on a
// pooled connection, and says whether it took the lock.
func TestNoCancellationLeavesALock(t *testing.T) {
	pgtest.Slow(t)
	n, _ := cancellations(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		workers := workers(p, t, 4)
		for _, f := range forms {
			t.Run(f.name, func(t *testing.T) {
				r := cancelCalls(t, workers, f, n, tally.around)
				t.Log(r)
				switch {
				case r.left > 0:
					t.Errorf("%d cancelled calls left a lock on a pooled connection", r.left)
				case !r.around():
					t.Error("the cancellations were not around the grant")
				}
			})
		}
		p.NoLocks(t)
	})
}

// The same harness sees the locks that calls by hand leave behind. Those that do so
// often must be seen; the others are for the record, when all are asked for.
func TestTheHarnessSeesLocksThatAreLeft(t *testing.T) {
	pgtest.Slow(t)
	n, all := cancellations(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		workers := workers(p, t, 4)
		for _, f := range naiveForms {
			if !f.leaksOften(p.By) && !all {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				enough := tally.any
				if f.leaksOften(p.By) {
					enough = tally.leaks
				}
				r := cancelCalls(t, workers, f.form, n, enough)
				t.Log(r)
				if !enough(r) {
					t.Error("none was left, or the harness does not see them")
				}
			})
		}
	})
}
