package recipes_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A group has the method of an errgroup.Group: the first error ends the others.
type group struct {
	all    sync.WaitGroup
	once   sync.Once
	err    error
	cancel context.CancelFunc
}

func (g *group) Go(f func() error) {
	g.all.Go(func() {
		if err := f(); err != nil {
			g.once.Do(func() { g.err = err; g.cancel() })
		}
	})
}

func addTo(ctx context.Context, g *group, l *locker.Locker, key advisory.Key, job func(context.Context) error) {
	g.Go(func() error { _, err := l.TryDo(ctx, key, job); return err })
}

// Of two members of a group one has the lock. The other skips, which is no error and does not end the
// first.
func TestSkipDoesNotEndTheGroup(t *testing.T) {
	l := locker.New(open(t, "postgres", pgtest.URL(t)))
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &group{cancel: cancel}
	key := advisory.Name("billing", "nightly")
	works, skipped := make(chan struct{}), make(chan struct{})
	addTo(ctx, g, l, key, func(ctx context.Context) error {
		close(works)
		<-skipped
		return ctx.Err()
	})
	<-works
	g.Go(func() error {
		defer close(skipped)
		ran, err := l.TryDo(ctx, key, func(context.Context) error { return nil })
		if ran {
			err = errors.Join(err, errors.New("ran beside the holder"))
		}
		return err
	})
	if g.all.Wait(); g.err != nil {
		t.Error(g.err)
	}
}
