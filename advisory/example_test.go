package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

func ExampleName() {
	customer := "17"
	fmt.Println(advisory.Name("billing", "invoices", customer))

	customer = "" // a mistake somewhere else
	fmt.Println(advisory.Name("billing", "invoices", customer).IsZero())
	// Output:
	// 2748709634206863427
	// true
}

func ExampleHashText() {
	key := advisory.HashText("reconcile")
	fmt.Printf("SELECT pg_try_advisory_lock(%s); -- hashtext('reconcile')\n", key.SQL())
	// Output:
	// SELECT pg_try_advisory_lock(-175064350); -- hashtext('reconcile')
}

func ExampleParseKey() {
	for _, s := range []string{"4820", "12:34", "name:billing/eu", "12, 34"} {
		key, err := advisory.ParseKey(s)
		if err != nil {
			fmt.Println(errors.Is(err, advisory.ErrInvalidKey))
			continue
		}
		fmt.Println(key)
	}
	// Output:
	// 4820
	// 12:34
	// -6174629731877052052
	// true
}

func ExampleFromContext() {
	// store runs inside Do of a Locker, many calls below it, and needs the token.
	store := func(ctx context.Context, balance int) error {
		lock, ok := advisory.FromContext(ctx)
		if !ok {
			return errors.New("store: to be called under the lock of the account")
		}
		fmt.Println("UPDATE … WHERE token <=", lock.Token())
		return nil
	}
	fmt.Println(store(context.Background(), 100))
	// Output:
	// store: to be called under the lock of the account
}

// A function that depends on Locker alone can be tested without a database.
func ExampleLocker() {
	_ = func(ctx context.Context, locker advisory.Locker, account string, pay func(context.Context) error) error {
		return locker.Do(ctx, advisory.Name("account", account), pay, advisory.Label("account"))
	}
}

func ExampleNotAcquiredError() {
	nightly := func(err error) {
		var held *advisory.NotAcquiredError
		switch {
		case errors.As(err, &held):
			for _, h := range held.Holders {
				fmt.Println("skipped, for", h.Application, "has", held.Key)
			}
		case err != nil:
			fmt.Println("failed:", err)
		}
	}
	nightly(&advisory.NotAcquiredError{
		Key:     advisory.Int64(4820),
		Holders: []advisory.Holder{{PID: 812, Application: "reconcile-2"}},
	})
	// Output:
	// skipped, for reconcile-2 has 4820
}

// A try is false if another has the lock. HoldersTo says who.
func ExampleHoldersTo() {
	locker := locktest.New()
	defer locker.Occupy(advisory.Int64(4820), advisory.Label("reconcile-2"))()

	var holders []advisory.Holder
	ran, err := locker.TryDo(context.Background(), advisory.Int64(4820),
		func(context.Context) error { return nil },
		advisory.HoldersTo(&holders))
	if err == nil && !ran {
		fmt.Println("skipped:", holders[0].Application, "has it")
	}
	// Output:
	// skipped: reconcile-2 has it
}

// An operator who wants a lock back pastes the statement into psql. It ends this session only, and only
// while it holds the key.
func ExampleHolder_EndSQL() {
	h := advisory.Holder{PID: 812, Key: advisory.Int64(4820), BackendStart: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	fmt.Println(strings.ReplaceAll(h.EndSQL(), " AND ", "\n\tAND "))
	// Output:
	// SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity JOIN pg_catalog.pg_locks USING (pid) WHERE pid = 812
	// 	AND backend_start = '2026-03-01 12:00:00+00'
	// 	AND locktype = 'advisory'
	// 	AND classid = '0'
	// 	AND objid = '4820'
	// 	AND objsubid = 1
	// 	AND mode = 'ExclusiveLock'
	// 	AND granted;
}
