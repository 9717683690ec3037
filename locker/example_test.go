package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

var (
	db  *sql.DB
	ctx context.Context
	l   *locker.Locker
)

func pay(context.Context) error { return nil }

// One Locker serves the whole process.
func ExampleNew() {
	l := locker.New(db, locker.WithFailover(10*time.Second), locker.WithApplicationName("billing"))
	defer l.Close()
	if err := l.Ping(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleLocker_Do() {
	if err := l.Do(ctx, advisory.Name("account", "7"), pay, advisory.MaxWait(5*time.Second)); err != nil {
		log.Print(err)
	}
}

func ExampleLocker_TryDo() {
	ran, err := l.TryDo(ctx, advisory.Name("nightly report"), pay)
	switch {
	case err != nil:
		log.Print(err)
	case !ran:
		log.Print("another process makes the report")
	}
}

func ExampleLocker_Lead() {
	err := l.Lead(ctx, advisory.Name("scheduler"), func(ctx context.Context) error {
		<-ctx.Done() // lead until the lock is lost or the process ends
		return context.Cause(ctx)
	})
	log.Print(err)
}

// At most three processes do this at a time.
func ExampleLocker_Semaphore() {
	if err := l.Semaphore(advisory.Name("import"), 3).Do(ctx, pay); err != nil {
		log.Print(err)
	}
}

func ExampleLocker_LockAll() {
	locks, err := l.LockAll(ctx, []advisory.Key{advisory.Name("account", "7"), advisory.Name("account", "8")})
	if err != nil {
		log.Print(err)
		return
	}
	defer locks.Unlock()
}

func ExampleLocker_LockAny() {
	printer, err := l.LockAny(ctx, []advisory.Key{advisory.Name("printer", "1"), advisory.Name("printer", "2")})
	if err != nil {
		log.Print(err)
		return
	}
	defer printer.Unlock()
	log.Print("prints on ", printer.Key())
}

// A job of a scheduler is skipped while another process runs it.
func ExampleLocker_Wrap() {
	job := l.Wrap(advisory.Name("clean up"), pay)
	if err := job(ctx); err != nil && !errors.Is(err, advisory.ErrNotAcquired) {
		log.Print(err)
	}
}

// A health check of a leader.
func ExampleLocker_Holds() {
	if !l.Holds(advisory.Name("scheduler")) {
		log.Print("not the leader")
	}
}

func ExampleLocker_Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		log.Print(err)
	}
}
