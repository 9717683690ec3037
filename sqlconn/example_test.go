package sqlconn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

var (
	ctx context.Context
	db  *sql.DB // sql.Open("postgres", url), with the driver of your choice
)

func reconcile(ctx context.Context, conn *sql.Conn) error { return nil }

// A job is scheduled on several nodes and must run on one.
func ExampleTryDo() {
	ran, err := sqlconn.TryDo(ctx, db.Conn, advisory.Int64(4820),
		func(ctx context.Context, conn *sql.Conn) error {
			return reconcile(ctx, conn)
		})
	switch {
	case err != nil:
		log.Fatal(err)
	case !ran:
		fmt.Println("another node is running it")
	}
}

// Only one report of a customer runs at a time; the others wait for their turn.
func ExampleDo() {
	customer := "17"
	err := sqlconn.Do(ctx, db.Conn, advisory.Name("billing", "report", customer),
		func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "CALL write_report($1)", customer)
			return err
		},
		advisory.MaxWait(10*time.Second)) // limits the wait, not the report

	var busy *advisory.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println("gave up; held by", busy.Holders)
	}
}

// A lock on a connection that has other uses too.
func ExampleTryLock() {
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close() // does not release locks: the connection goes back to the pool

	key := advisory.Name("search", "rebuild")
	ok, err := sqlconn.TryLock(ctx, conn, key)
	if err != nil {
		log.Fatal(err)
	}
	if !ok {
		return // another session has it
	}
	defer func() {
		if err := sqlconn.Unlock(ctx, conn, key); err != nil { // works also when ctx has ended
			log.Print(err)
		}
	}()

	if _, err := conn.ExecContext(ctx, "REFRESH MATERIALIZED VIEW CONCURRENTLY search"); err != nil {
		log.Print(err)
	}
}

// Several readers may hold the lock at a time, while no writer holds it.
func ExampleLock_shared() {
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	key := advisory.Name("warehouse", "import")
	if err := sqlconn.Lock(ctx, conn, key, advisory.Shared); err != nil {
		log.Fatal(err)
	}
	defer sqlconn.Unlock(ctx, conn, key, advisory.Shared) // in the mode in which it was taken

	if _, err := conn.ExecContext(ctx, "CALL export_warehouse()"); err != nil {
		log.Print(err)
	}
}

func ExampleHeld() {
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	locks, err := sqlconn.Held(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range locks {
		fmt.Println(l.Key, l.Mode)
	}
}
