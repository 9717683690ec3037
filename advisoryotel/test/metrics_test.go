package otel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lib/pq"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

func TestAttemptsByOutcome(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			tel := newTelemetry(t)
			url := pgtest.URL(t)
			l := newLocker(t, open(t, driver, url), advisory.WithObserver(tel))
			other := newLocker(t, open(t, driver, url), advisory.WithObserver(tel))
			account := advisory.Label("account")

			held := lock(t, l, key, account)
			if _, ok, err := other.TryLock(t.Context(), key, account); ok || err != nil {
				t.Error(ok, err)
			}
			if _, err := other.Lock(t.Context(), key, account, advisory.MaxWait(0)); !errors.Is(err, advisory.ErrNotAcquired) {
				t.Error(err)
			}
			if _, err := other.Lock(t.Context(), key, account, advisory.MaxWait(time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
				t.Error(err)
			}
			if _, err := other.Lock(cancelled(t), key, account); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := other.Lock(short, key, account); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			unlock(t, held)
			unlock(t, lock(t, other, key, advisory.Shared))
			other.Close()
			if _, _, err := other.TryLock(t.Context(), key); !errors.Is(err, advisory.ErrClosed) {
				t.Error(err)
			}

			found := tel.metrics(t)
			want := map[string]float64{
				"label=account mode=exclusive outcome=acquired":                  1,
				"label=account mode=exclusive outcome=not_acquired":              3,
				"error.type=canceled label=account mode=exclusive outcome=error": 1,
				"error.type=timeout label=account mode=exclusive outcome=error":  1,
				"error.type=closed mode=exclusive outcome=error":                 1,
				"mode=shared outcome=acquired":                                   1,
			}
			equal(t, "attempts", counts(t, found["attempts"]), want)
			equal(t, "waits", counts(t, found["wait.duration"]), want)
			equal(t, "holds", counts(t, found["hold.duration"]), map[string]float64{
				"label=account mode=exclusive outcome=released": 1,
				"mode=shared outcome=released":                  1,
			})
		})
	}
}

// Names, units and boundaries are a contract with dashboards.
func TestInstruments(t *testing.T) {
	tel := newTelemetry(t)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
	defer tel.RegisterStats(l)()
	unlock(t, lock(t, l, key))
	tel.Observe(t.Context(), advisory.Event{Kind: advisory.Lost, Err: advisory.ErrLost})
	tel.Observe(t.Context(), advisory.Event{Kind: advisory.Unconfirmed, Err: advisory.ErrUnconfirmed})

	seconds := []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}
	var lines []string
	for name, m := range tel.metrics(t) {
		kind := ""
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = map[bool]string{true: "counter", false: "updowncounter"}[d.IsMonotonic]
		case metricdata.Gauge[float64]:
			kind = "gauge"
		case metricdata.Histogram[float64]:
			kind = "histogram"
			if b := d.DataPoints[0].Bounds; !slices.Equal(b[:len(seconds)], seconds) {
				t.Errorf("%s has the boundaries %v", name, b)
			}
		}
		if m.Description == "" {
			t.Errorf("%s has no description", name)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", name, kind, m.Unit))
	}
	slices.Sort(lines)
	equal(t, "instruments", lines, []string{
		"attempts counter {attempt}",
		"hold.count updowncounter {lock}",
		"hold.duration histogram s",
		"holder.count updowncounter {holder}",
		"losses counter {lock}",
		"session.count updowncounter {connection}",
		"session.last_answer.age gauge s",
		"unconfirmed counter {event}",
		"wait.duration histogram s",
		"waiter.count updowncounter {waiter}",
	})
}

// A primary that is not confirmed counts by its cause, and is no loss, no call and no span.
func TestUnconfirmed(t *testing.T) {
	tel := newTelemetry(t)
	noStandby := fmt.Errorf("%w: %w", advisory.ErrUnconfirmed, &advisory.UnsafeServerError{Reason: advisory.NoStandby, Detail: "…"})
	for _, e := range []advisory.Event{
		{Kind: advisory.Unconfirmed, Left: time.Second, Err: fmt.Errorf("%w: a commit waits since 2.017s", advisory.ErrUnconfirmed)},
		{Kind: advisory.Confirmed, Waited: time.Second},
		{Kind: advisory.Unconfirmed, Left: time.Second, Err: fmt.Errorf("%w: a commit waits since 2.018s", advisory.ErrUnconfirmed)},
		{Kind: advisory.Unconfirmed, Err: noStandby},
	} {
		tel.Observe(t.Context(), e)
	}
	found := tel.metrics(t)
	equal(t, "unconfirmed", counts(t, found["unconfirmed"]), map[string]float64{"error.type=unconfirmed": 2, "error.type=unsafe_server": 1})
	if len(found) != 1 {
		t.Errorf("%d metrics: %v", len(found), found)
	}
	if spans := tel.spans.Ended(); len(spans) != 0 {
		t.Errorf("%d spans", len(spans))
	}
}

// The durations are those of the events.
func TestDurations(t *testing.T) {
	tel := newTelemetry(t)
	for _, e := range []advisory.Event{
		{Kind: advisory.Acquired, Waited: 1500 * time.Millisecond},
		{Kind: advisory.Released, Held: 2 * time.Hour},
		{Kind: advisory.Released}, // an unlock that does not know for how long
		{Kind: advisory.Waiting, Waited: time.Minute},
		{Kind: advisory.SessionOpened, PID: 1},
		{Kind: advisory.SessionClosed, PID: 1},
		{Kind: 99},
	} {
		tel.Observe(t.Context(), e)
	}
	found := tel.metrics(t)
	if len(found) != 4 {
		t.Errorf("%d metrics: %v", len(found), found)
	}
	for name, want := range map[string]float64{"wait.duration": 1.5, "hold.duration": 7200} {
		points := found[name].Data.(metricdata.Histogram[float64]).DataPoints
		if len(points) != 1 || points[0].Sum != want || points[0].Count != 1 {
			t.Errorf("%s: %+v", name, points)
		}
		if b := points[0].Bounds; b[len(b)-1] <= want {
			t.Errorf("%s: %v s is beyond the boundaries %v", name, want, b)
		}
	}
}

func TestWorkOnConnectionsAndInTransactions(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			tel := newTelemetry(t)
			db := open(t, driver, pgtest.URL(t))
			o := advisory.WithObserver(tel)
			if err := sqlconn.Do(t.Context(), db.Conn, key, func(context.Context, *sql.Conn) error { return nil }, o, advisory.Label("conn")); err != nil {
				t.Error(err)
			}
			if err := xact.Do(t.Context(), db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil }, o, advisory.Label("tx")); err != nil {
				t.Error(err)
			}
			found := tel.metrics(t)
			equal(t, "attempts", counts(t, found["attempts"]), map[string]float64{
				"label=conn mode=exclusive outcome=acquired": 1, "label=tx mode=exclusive outcome=acquired": 1,
			})
			equal(t, "holds", counts(t, found["hold.duration"]), map[string]float64{
				"label=conn mode=exclusive outcome=released": 1, "label=tx mode=exclusive outcome=released": 1,
			})
		})
	}
}

func TestLosses(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			tel := newTelemetry(t)
			db := open(t, driver, pgtest.URL(t))
			l := newLocker(t, db, advisory.WithObserver(tel))
			held := lock(t, l, key, advisory.Label("leader"))
			equal(t, "losses before the first", counts(t, tel.metrics(t)["losses"]), map[string]float64{"label=leader mode=exclusive": 0})
			terminate(t, db)
			receive(t, "the lock is lost", held.Context().Done())
			var found map[string]metricdata.Metrics
			eventually(t, "the loss is counted", func() bool {
				found = tel.metrics(t)
				return found["hold.duration"].Data != nil && counts(t, found["losses"])["label=leader mode=exclusive"] != 0
			})
			equal(t, "losses", counts(t, found["losses"]), map[string]float64{"label=leader mode=exclusive": 1})
			for attrs, n := range counts(t, found["hold.duration"]) {
				// The server's farewell may not arrive.
				if n != 1 || attrs != "error.type=57P01 label=leader mode=exclusive outcome=lost" && attrs != "error.type=lost label=leader mode=exclusive outcome=lost" {
					t.Errorf("%v with %s", n, attrs)
				}
			}
		})
	}
}

// sentBy is an error with a SQLSTATE, and in another error as the drivers' are.
func sentBy(state pq.ErrorCode) error { return fmt.Errorf("lock: %w", &pq.Error{Code: state}) }

func TestErrorTypes(t *testing.T) {
	busy := &advisory.NotAcquiredError{Key: key, Holders: []advisory.Holder{{PID: 1}}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{busy, ""},
		{fmt.Errorf("wrapped: %w", busy), ""},
		{&advisory.NotAcquiredError{Cause: context.Canceled}, "canceled"},
		{&advisory.NotAcquiredError{Cause: fmt.Errorf("%w: %w", context.DeadlineExceeded, errors.New("cause"))}, "timeout"},
		{fmt.Errorf("%w: %w", advisory.ErrDeadlock, sentBy("40P01")), "deadlock"},
		{fmt.Errorf("%w: %w", advisory.ErrLockTableFull, sentBy("53200")), "lock_table_full"},
		{&advisory.UnsafeServerError{Reason: advisory.Pooler}, "unsafe_server"},
		{advisory.ErrStaleSnapshot, "stale_snapshot"},
		{advisory.ErrAlreadyHeld, "already_held"},
		{sentBy("42501"), "42501"},
		{fmt.Errorf("%w: %w", advisory.ErrLost, sentBy("57P01")), "57P01"},
		{fmt.Errorf("%w: gone", advisory.ErrLost), "lost"},
		{advisory.ErrClosed, "closed"},
		{advisory.ErrNotHeld, "not_held"},
		{fmt.Errorf("lock 4820: %w", sql.ErrConnDone), "*errors.errorString"},
		{fmt.Errorf("dial: %w", &customError{}), "*otel_test.customError"},
	} {
		tel := newTelemetry(t)
		tel.Observe(t.Context(), advisory.Event{Kind: advisory.NotAcquired, Key: key, Err: c.err})
		want := "mode=exclusive outcome=not_acquired"
		if c.want != "" {
			want = "error.type=" + c.want + " mode=exclusive outcome=error"
		}
		equal(t, fmt.Sprint(c.err), counts(t, tel.metrics(t)["attempts"]), map[string]float64{want: 1})
	}
}

type customError struct{}

func (*customError) Error() string { return "custom" }

// A program that locks many keys has no more time series than one that locks one.
func TestKeysAreNoLabels(t *testing.T) {
	tel, asked := newTelemetry(t), newTelemetry(t, advisoryotel.WithKeysInMetrics())
	for _, tel := range []*telemetry{tel, asked} {
		l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
		for n := range int64(100) {
			unlock(t, lock(t, l, advisory.Int64(n)))
		}
		unlock(t, lock(t, l, advisory.Pair(7, 1)))
	}
	for name, m := range tel.metrics(t) {
		equal(t, name, counts(t, m), map[string]map[string]float64{
			"attempts":      {"mode=exclusive outcome=acquired": 101},
			"wait.duration": {"mode=exclusive outcome=acquired": 101},
			"hold.duration": {"mode=exclusive outcome=released": 101},
			"losses":        {"mode=exclusive": 0},
		}[name])
	}
	for name, m := range asked.metrics(t) {
		if got := counts(t, m); len(got) != 101 {
			t.Errorf("%s has %d series", name, len(got))
		}
	}
	if got := counts(t, asked.metrics(t)["attempts"]); got["key=7:1 mode=exclusive outcome=acquired"] != 1 {
		t.Errorf("%v", got)
	}
}

// Readers of one process share a lock of the server, and each is a call and a hold of its own.
func TestReadersOfOneProcess(t *testing.T) {
	tel := newTelemetry(t)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
	defer tel.RegisterStats(l)()
	a, b := lock(t, l, key, advisory.Shared), lock(t, l, key, advisory.Shared)
	found := tel.metrics(t)
	equal(t, "attempts", counts(t, found["attempts"]), map[string]float64{"mode=shared outcome=acquired": 2})
	equal(t, "locks", counts(t, found["hold.count"]), map[string]float64{"": 1})
	equal(t, "holders", counts(t, found["holder.count"]), map[string]float64{"": 2})
	unlock(t, a)
	unlock(t, b)
	equal(t, "holds", counts(t, tel.metrics(t)["hold.duration"]), map[string]float64{"mode=shared outcome=released": 2})
}

var _ locker.Option = advisory.WithObserver((*advisoryotel.Observer)(nil))
