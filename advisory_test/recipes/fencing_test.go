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

var errOldToken = errors.New("the token is older than one already seen")

// A store outside PostgreSQL remembers the greatest token that it has seen.
type store struct {
	mu    sync.Mutex
	token uint64
	value string
}

func (s *store) Put(token uint64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errOldToken
	}
	s.token, s.value = token, value
	return nil
}

// publish needs a Locker with tokens: locker.New(db, locker.WithFencing()).
func publish(ctx context.Context, fenced *locker.Locker, s *store, render func(context.Context) string) error {
	lock, err := fenced.Lock(ctx, advisory.Name("reports", "daily"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return s.Put(lock.Token(), render(lock.Context()))
}

// A holder that has not noticed the loss of its lock cannot write over its successor.
func TestFencedStoreRefusesAnOldToken(t *testing.T) {
	url := pgtest.URL(t)
	var s store
	first, second := newLocker(t, url, locker.WithFencing()), newLocker(t, url, locker.WithFencing())
	err := publish(t.Context(), first, &s, func(context.Context) string {
		terminateHolders(t, url)
		if err := publish(t.Context(), second, &s, func(context.Context) string { return "new" }); err != nil {
			t.Error(err)
		}
		return "old"
	})
	if !errors.Is(err, errOldToken) || s.value != "new" {
		t.Errorf("the store has %q: %v", s.value, err)
	}
}
