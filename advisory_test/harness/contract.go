package harness

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// EachDriverOfPools is eachDriver for what takes a *sql.DB: sqlx makes no difference to it.
func EachDriverOfPools(t *testing.T, test func(t *testing.T, p *Pool)) {
	for _, d := range Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) { test(t, d.Open(t, pgtest.URL(t))) })
	}
}

func Release(t *testing.T, lock advisory.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

func IsErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %q", err, target)
		}
	}
}

// Ended waits for the end of ctx and checks its cause.
func Ended(t *testing.T, ctx context.Context, cause error) {
	t.Helper()
	select {
	case <-ctx.Done():
		IsErr(t, context.Cause(ctx), cause)
	case <-time.After(Patience):
		t.Errorf("it has not ended with %v", cause)
	}
}

func Receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatal("it does not come back")
	}
	return v
}

type Word struct{}

func Cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A Recorder is an Observer that keeps its events.
type Recorder struct {
	Mu     sync.Mutex
	Events []advisory.Event
}

func (r *Recorder) Observe(_ context.Context, e advisory.Event) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Events = append(r.Events, e)
}

// UntilWaiting ends a wait when it has reported that it waits, and returns its events.
func UntilWaiting(ctx context.Context, wait func(context.Context, ...advisory.Option) error) ([]advisory.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	r := endsWaits{end: cancel}
	err := wait(ctx, advisory.WithObserver(&r), advisory.WithWaitingAfter(time.Millisecond))
	return r.All(), err
}

// endsWaits is a [Recorder] that ends a wait when it reports that it waits.
type endsWaits struct {
	Recorder
	end func()
}

func (r *endsWaits) Observe(ctx context.Context, e advisory.Event) {
	r.Recorder.Observe(ctx, e)
	if e.Kind == advisory.Waiting {
		r.end()
	}
}

func (r *Recorder) All() []advisory.Event {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return slices.Clone(r.Events)
}

func (r *Recorder) Kinds() (kinds []advisory.EventKind) {
	for _, e := range r.All() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Are waits until the kinds are those, in that order, and returns the events.
func (r *Recorder) Are(t *testing.T, kinds ...advisory.EventKind) []advisory.Event {
	t.Helper()
	for end := time.Now().Add(Patience); !slices.Equal(r.Kinds(), kinds); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) || len(r.Kinds()) > len(kinds) {
			t.Fatalf("%+v\nwant %v", r.All(), kinds)
		}
	}
	return r.All()
}

// IsOf checks what all events of a lock have.
func IsOf(t *testing.T, e advisory.Event, k advisory.Key, m advisory.Mode, label string) {
	t.Helper()
	if e.Key != k || e.Mode != m || e.Label != label || e.Waited < 0 || e.Held < 0 {
		t.Errorf("%+v; want %v %v %q", e, k, m, label)
	}
}
