package otel_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// now returns the values of the moment that have one attribute set, that of a pool of the name.
func now(t *testing.T, tel *telemetry, pool string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for name, m := range tel.metrics(t) {
		switch name {
		case "hold.count", "holder.count", "waiter.count", "session.count":
			values := counts(t, m)
			if v, ok := values[pool]; ok {
				found[name] = v
			}
		}
	}
	return found
}

func TestNumbersOfTheMoment(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			tel := newTelemetry(t)
			url := pgtest.URL(t)
			a, b, c := newLocker(t, open(t, driver, url)), newLocker(t, open(t, driver, url)), newLocker(t, open(t, driver, url))
			removeA, removeB := tel.RegisterStats(a), tel.RegisterStats(b)
			defer tel.RegisterStats(c, attribute.String("db.client.connection.pool.name", "second"))()
			const second = "db.client.connection.pool.name=second"
			equal(t, "before the first lock", now(t, tel, ""), map[string]float64{
				"hold.count": 0, "holder.count": 0, "waiter.count": 0, "session.count": 0,
			})
			if m := tel.metrics(t)["session.last_answer.age"]; m.Data != nil {
				t.Errorf("no session has answered: %v", m)
			}

			held := []advisory.Lock{lock(t, a, key), lock(t, a, advisory.Int64(1)), lock(t, b, advisory.Int64(2)), lock(t, c, advisory.Int64(3))}
			got := make(chan error, 1)
			go func() {
				l, err := b.Lock(t.Context(), key)
				l.Unlock()
				got <- err
			}()
			eventually(t, "one waits", func() bool { return now(t, tel, "")["waiter.count"] == 1 })
			sessions := float64(a.Stats().Sessions + b.Stats().Sessions)
			equal(t, "two Lockers of equal attributes", now(t, tel, ""), map[string]float64{
				"hold.count": 3, "holder.count": 3, "waiter.count": 1, "session.count": sessions,
			})
			equal(t, "the second pool", now(t, tel, second), map[string]float64{
				"hold.count": 1, "holder.count": 1, "waiter.count": 0, "session.count": 1,
			})
			ages := counts(t, tel.metrics(t)["session.last_answer.age"])
			if len(ages) != 2 || ages[""] <= 0 || ages[second] <= 0 || ages[""] > enough.Seconds() {
				t.Errorf("ages %v", ages)
			}

			unlock(t, held[0])
			if err := receive(t, "the waiter has had the lock", got); err != nil {
				t.Error(err)
			}
			for _, h := range held[1:] {
				unlock(t, h)
			}
			if n := now(t, tel, ""); n["hold.count"] != 0 || n["holder.count"] != 0 || n["waiter.count"] != 0 {
				t.Errorf("after the last unlock: %v", n)
			}
			removeA()
			removeA() // does nothing
			equal(t, "with one of two", now(t, tel, "")["session.count"], float64(b.Stats().Sessions))
			removeB()
			equal(t, "with none", now(t, tel, ""), map[string]float64{})
			if n := now(t, tel, second)["session.count"]; n != 1 {
				t.Errorf("the second pool has %v sessions", n)
			}
		})
	}
}

// The age is that of the session that is silent the longest, and grows while the server is silent.
func TestAgeOfTheLastAnswer(t *testing.T) {
	pgtest.Slow(t)
	tel := newTelemetry(t)
	server := pgtest.NewServer(t)
	silent, well := newLocker(t, open(t, "postgres", server.URL())), newLocker(t, open(t, "postgres", pgtest.URL(t)))
	lock(t, silent, key)
	lock(t, well, key)
	defer tel.RegisterStats(silent)()
	defer tel.RegisterStats(well)()
	age := func() float64 { return counts(t, tel.metrics(t)["session.last_answer.age"])[""] }
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the age exceeds two heartbeats", func() bool { return age() > 1 })
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has answered", func() bool { return age() < 1 })
}

func TestClosedLocker(t *testing.T) {
	tel := newTelemetry(t)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)))
	lock(t, l, key)
	unregister := tel.RegisterStats(l)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	zeros := map[string]float64{"hold.count": 0, "holder.count": 0, "waiter.count": 0, "session.count": 0}
	equal(t, "a closed Locker", now(t, tel, ""), zeros)
	if m := tel.metrics(t)["session.last_answer.age"]; m.Data != nil {
		t.Errorf("%v", m)
	}
	unregister()
	equal(t, "and unregistered", now(t, tel, ""), map[string]float64{})

	var none *locker.Locker
	defer tel.RegisterStats(none)()
	equal(t, "a nil Locker", now(t, tel, ""), zeros)
}
