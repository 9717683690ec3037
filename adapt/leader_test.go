package adapt_test

import (
	"context"
	"errors"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

// A leader leads on a Locker in memory, as a locker.Locker does on a server: again after a loss.
type leader struct{ *locktest.Locker }

func (l leader) Lead(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	for {
		if err := l.Do(ctx, key, fn, opts...); !errors.Is(err, advisory.ErrLost) {
			return err
		}
	}
}
