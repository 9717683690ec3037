package recipes_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"hash/fnv"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// ctxlockTry has the shape of ctxlock's TryLock: one connection, the eight bytes of a hash as the key,
// and a ctx that has ended if there is no lock, whatever the reason.
func ctxlockTry(parent context.Context, conn *sql.Conn, key string) (context.Context, context.CancelFunc) {
	h := fnv.New64a()
	h.Write([]byte(key))
	number := int64(binary.BigEndian.Uint64(h.Sum(nil)))
	child, done := context.WithCancel(parent)
	var ok bool
	err := conn.QueryRowContext(parent, "SELECT pg_try_advisory_lock($1)", number).Scan(&ok)
	if err != nil || !ok {
		done()
		return child, done
	}
	return child, func() {
		conn.ExecContext(context.WithoutCancel(parent), "SELECT pg_advisory_unlock($1)", number)
		done()
	}
}

func ctxlockBefore(ctx context.Context, conn *sql.Conn, job func(context.Context) error) error {
	ctx, done := ctxlockTry(ctx, conn, "nightly")
	defer done()
	if ctx.Err() != nil {
		return nil // taken, or the server failed
	}
	return job(ctx)
}

func ctxlockAfter(ctx context.Context, l *locker.Locker, job func(context.Context) error) error {
	h := fnv.New64a()
	h.Write([]byte("nightly"))
	_, err := l.TryDo(ctx, advisory.Int64(int64(h.Sum64())), job)
	return err
}

// One who still uses ctxlock and one who has moved over exclude each other, either way around. A
// failure of the server is no taken key any more.
func TestMovingOverFromCtxlock(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, "postgres", url)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(db)
	ways := map[string]func(context.Context, func(context.Context) error) error{
		"before": func(ctx context.Context, job func(context.Context) error) error { return ctxlockBefore(ctx, conn, job) },
		"after":  func(ctx context.Context, job func(context.Context) error) error { return ctxlockAfter(ctx, l, job) },
	}
	never := func(context.Context) error { t.Error("two at once"); return nil }
	for one, other := range map[string]string{"before": "after", "after": "before"} {
		ran := false
		err := ways[one](t.Context(), func(ctx context.Context) error {
			ran = true
			return ways[other](t.Context(), never)
		})
		if err != nil || !ran || held(t, url) != 0 {
			t.Errorf("%s: ran %t, %d locks left, %v", one, ran, held(t, url), err)
		}
	}

	l.Close()
	conn.Close()
	db.Close()
	for name, fails := range map[string]bool{"before": false, "after": true} {
		if err := ways[name](t.Context(), never); (err != nil) != fails {
			t.Errorf("%s, without a server: %v", name, err)
		}
	}
}
