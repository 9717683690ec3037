package wait

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A wait goes on for as long as it takes, at the same pace.
func TestLongWaitGoesOn(t *testing.T) {
	const long = 30 * time.Minute
	for _, way := range []struct {
		name   string
		until  func(*Wait) error
		most   time.Duration // from one round to the next
		rounds func(*server) int
	}{
		{"slices", inSlices, lockfn.MaxSlice, func(s *server) int { return s.slices }},
		{"tries", byTries, lastPause * 3 / 2, func(s *server) int { return s.tries }},
	} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{free: time.Now().Add(long)}
				w := newWait(t, s, t.Context())
				if err := way.until(w); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(w.Start); waited < long || waited > long+way.most {
					t.Errorf("the key was free after %v, the wait has it after %v", long, waited)
				}
				if n := way.rounds(s); n < int(long/way.most) {
					t.Errorf("%d rounds in %v", n, long)
				}
				if n := s.looks; n < int(long/checkInterval)/2 {
					t.Errorf("%d looks for a deadlock in %v", n, long)
				}
			})
		})
	}
}

func TestPauseGrowsToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWait(t, &server{}, t.Context())
		for i := range 10000 {
			start := time.Now()
			w.Pause()
			if d := time.Since(start); d < firstPause/2 || d > lastPause*3/2 || i > 100 && d < lastPause/2 {
				t.Fatalf("pause %d is of %v", i, d)
			}
		}
	})
}

func TestLongWaitEnds(t *testing.T) {
	const long = 10 * time.Minute
	errReason := errors.New("the reason")
	for name, until := range map[string]func(*Wait) error{"slices": inSlices, "tries": byTries} {
		for by, options := range map[string][]advisory.ConnOption{"MaxWait": {advisory.MaxWait(long)}, "ctx": nil} {
			t.Run(name+", "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if by == "ctx" {
						time.AfterFunc(long, func() { cancel(errReason) })
					}
					s := &server{free: time.Now().Add(10 * long)}
					w := newWait(t, s, ctx, options...)
					err := until(w)
					var na *advisory.NotAcquiredError
					if !errors.As(err, &na) || na.Key != key || errors.Is(err, errReason) != (by == "ctx") || errors.Is(err, context.Canceled) != (by == "ctx") {
						t.Fatal(err)
					}
					if waited := time.Since(w.Start); na.Waited != waited || waited < long || waited > long+lockfn.MaxSlice {
						t.Errorf("waited for %v, said to be %v", waited, na.Waited)
					}
					if s.waits() {
						t.Error("the session is still shown as a waiter")
					}
				})
			})
		}
	}
}

func TestLongWaitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told observer
		s := &server{free: time.Now().Add(time.Hour)}
		if err := inSlices(newWait(t, s, t.Context(), advisory.WithObserver(&told))); err != nil {
			t.Fatal(err)
		}
		if len(told) != 10 { // 5 s doubles ten times, not eleven, in an hour
			t.Errorf("told %d times: %v", len(told), told)
		}
		for i, waited := range told {
			if waited < longWait<<i || i == 0 && waited > longWait {
				t.Errorf("told for the %d. time after %v", i+1, waited)
			}
		}
	})
}

// A wait goes on if it cannot learn who holds the key, except where every further statement would fail.
func TestLongWaitThatCannotAskForTheHolders(t *testing.T) {
	for name, c := range map[string]struct {
		until  func(*Wait) error
		before string
		inTx   bool
		ends   bool
	}{
		"slices":                       {until: inSlices},
		"tries in one's own":           {until: byTries, before: lockfn.RollbackAndChain + "; "},
		"tries in one of the caller's": {until: byTries, inTx: true},
		"tries where one may be open":  {until: byTries, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told observer
				s := &server{free: time.Now().Add(15 * time.Second)}
				w := newWait(t, s, t.Context(), advisory.WithObserver(&told), advisory.WithWaitingAfter(2*time.Second))
				w.Before, w.InTx = c.before, c.inTx
				err := c.until(w)
				if ends := errors.Is(err, errNotTold); ends != c.ends || err != nil && !ends {
					t.Errorf("after %v: %v", time.Since(w.Start), err)
				}
				if s.open != 0 {
					t.Errorf("%d savepoints are left", s.open)
				}
				if got, want := len(told), 3; !c.ends && got != want || c.ends && got != 0 {
					t.Errorf("told %v", told)
				}
			})
		})
	}
}

// Without an Observer, or before the time has come, nothing is asked.
func TestWaitAsksForNoHoldersThatNobodyWants(t *testing.T) {
	for name, opts := range map[string][]advisory.ConnOption{
		"no Observer": {advisory.WithWaitingAfter(time.Millisecond)},
		"too early":   {advisory.WithObserver(new(observer)), advisory.WithWaitingAfter(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{free: time.Now().Add(time.Minute)}
				if err := inSlices(newWait(t, s, t.Context(), opts...)); err != nil || s.asks != 0 {
					t.Errorf("%v, asked %d times", err, s.asks)
				}
			})
		})
	}
}

type observer []time.Duration

func (o *observer) Observe(_ context.Context, e advisory.Event) {
	if e.Kind == advisory.Waiting {
		*o = append(*o, e.Waited)
	}
}

// Whoever sees the session afterwards must not take it for a waiter.
func TestWaitThatFailsIsShownNoMore(t *testing.T) {
	errServer := errors.New("an error of the server")
	for _, c := range []struct {
		rows int64
		err  error
		is   error
	}{
		{rows: lockfn.SliceCanceled, is: ErrCanceled},
		{rows: lockfn.SliceDeadlock, is: advisory.ErrDeadlock},
		{err: errServer, is: errServer},
	} {
		s := &server{slice: func() (int64, error) { return c.rows, c.err }}
		if err := inSlices(newWait(t, s, t.Context())); !errors.Is(err, c.is) {
			t.Errorf("%v, want %v", err, c.is)
		}
		if s.waits() {
			t.Errorf("%v: the session is still shown as a waiter", c.is)
		}
	}
}

// A circle counts once it was seen twice in a row. Who is not its first waits for
// that one to give way.
func TestDeadlockIsTold(t *testing.T) {
	const mark = 7
	first, other, none := int64(2*mark-1), int64(2*mark), int64(0)
	another := first + 2
	for _, c := range []struct {
		name   string
		answer []int64       // of one look after the other, the last one for ever
		told   time.Duration // 0: never
	}{
		{"first", []int64{first}, firstCheck + checkInterval},
		{"other", []int64{other}, firstCheck + othersFail},
		{"first, later", []int64{none, none, first}, firstCheck + 3*checkInterval},
		{"no circle", []int64{none}, 0},
		{"once", []int64{first, none}, 0},
		{"circles that change", slices.Repeat([]int64{first, another}, 100), firstCheck + 200*checkInterval},
		{"gone and back", []int64{other, other, other, none, other}, firstCheck + 4*checkInterval + othersFail},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{free: time.Now().Add(time.Hour)}
				s.circle = func() int64 { return c.answer[min(s.looks, len(c.answer))-1] }
				w := newWait(t, s, t.Context())
				err := inSlices(w)
				if c.told == 0 {
					if err != nil {
						t.Errorf("after %v: %v", time.Since(w.Start), err)
					}
					return
				}
				if !errors.Is(err, advisory.ErrDeadlock) {
					t.Fatal(err)
				}
				// A look comes at the end of a slice. The slice before the first look, and
				// before one that follows the sight of a circle, ends when the look is due.
				late := time.Duration(0)
				for _, answer := range c.answer {
					if answer == none {
						late += lockfn.MaxSlice
					}
				}
				if d := time.Since(w.Start); d < c.told || d > c.told+late {
					t.Errorf("told after %v, want %v", d, c.told)
				}
				if s.waits() {
					t.Error("the session is still shown as a waiter")
				}
			})
		})
	}
}
