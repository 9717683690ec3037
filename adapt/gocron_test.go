package adapt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// panics reports what f panics with.
func panics(f func()) (with any) {
	defer func() { with = recover() }()
	f()
	return nil
}

func TestNilLockersPanicWhereTheyAreGiven(t *testing.T) {
	var none *locker.Locker
	key := advisory.Name("a", "b")
	for name, f := range map[string]func(){
		"Gocron":        func() { adapt.Gocron[gocronLock](none) },
		"GocronElector": func() { adapt.GocronElector(none, key) },
		"Cron":          func() { adapt.Cron[cronJob](none, key, nil) },
		"Wrap":          func() { adapt.Wrap(nil, key, func(context.Context) error { return nil }) },
	} {
		if with, _ := panics(f).(string); !strings.Contains(with, "adapt."+name+": the Locker is nil") {
			t.Errorf("%s panics with %q", name, with)
		}
	}
}

type otherLock struct{}

func (otherLock) Unlock(context.Context) error { return nil }
func (otherLock) Run()                         {}

func TestTypeArgumentsThatAreNoInterfacePanic(t *testing.T) {
	for name, f := range map[string]func(){
		"Gocron": func() { adapt.Gocron[otherLock](locktest.New()) },
		"Cron":   func() { adapt.Cron[otherLock](locktest.New(), advisory.Int64(1), nil) },
	} {
		if with, _ := panics(f).(string); !strings.Contains(with, "adapt."+name+": its type argument") {
			t.Errorf("%s panics with %q", name, with)
		}
	}
}

func TestGocronKeyOfAJob(t *testing.T) {
	l := locktest.New()
	if _, err := adapt.Gocron[gocronLock](l).Lock(t.Context(), "report"); err != nil || !l.Holds(advisory.Name("gocron", "report")) {
		t.Errorf("%v; the key is not that of the job's name", err)
	}
}

func TestGocronJobWithoutAName(t *testing.T) {
	lock, err := adapt.Gocron[gocronLock](locktest.New()).Lock(t.Context(), "")
	if lock != nil || !errors.Is(err, advisory.ErrInvalidKey) {
		t.Errorf("%v, %v", lock, err)
	}
}

func TestGocronErrorNamesTheJobAndTheHolder(t *testing.T) {
	l := locktest.New()
	defer l.Occupy(advisory.Name("gocron", "report"), advisory.Label("node 2"))()
	lock, err := adapt.Gocron[gocronLock](l).Lock(t.Context(), "report")
	refused, ok := errors.AsType[*advisory.NotAcquiredError](err)
	if lock != nil || !ok || len(refused.Holders) != 1 || !strings.Contains(err.Error(), `"report"`) {
		t.Errorf("%v, %v", lock, err)
	}
}

func TestGocronAfterContextEnded(t *testing.T) {
	l := locktest.New()
	ctx, cancel := context.WithCancel(t.Context())
	g := adapt.Gocron[gocronLock](l)
	lock, err := g.Lock(ctx, "report")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := lock.Unlock(ctx); err != nil || l.Holds(advisory.Name("gocron", "report")) {
		t.Errorf("Unlock after the end of ctx: %v", err)
	}
	if lock, err := g.Lock(ctx, "report"); lock != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Lock after the end of ctx: %v, %v", lock, err)
	}
}

func TestGocronUnlockOfALostLock(t *testing.T) {
	l := locktest.New()
	lock, err := adapt.Gocron[gocronLock](l).Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	l.Lose(advisory.Name("gocron", "report"))
	if err := lock.Unlock(t.Context()); !errors.Is(err, advisory.ErrLost) {
		t.Error(err)
	}
}
