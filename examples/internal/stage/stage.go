// Package stage has the parts of the examples that are not about locks: a database of their own, and
// processes that begin at the same moment. A user of the library does not need it.
package stage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A Stage is a new database, which Run drops at the end.
type Stage struct {
	URL string
	DB  *sql.DB
}

// The environment variables that give a process its role.
const (
	roleVariable = "PGADVISORY_EXAMPLE_ROLE"
	urlVariable  = "PGADVISORY_EXAMPLE_URL"
)

// Run runs the program and exits. It calls direct in the process that the user started, and act in
// those that [Stage.Cast] starts. The exit code is 1 after an error.
func Run(direct func(context.Context, *Stage) error, act func(context.Context, *Role) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if name := os.Getenv(roleVariable); name != "" {
		role := newRole(name, os.Getenv(urlVariable))
		if err := act(ctx, role); err != nil {
			role.fail(err)
			os.Exit(1)
		}
		return
	}
	if err := set(ctx, direct); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// set finds or starts a server and creates a database.
func set(ctx context.Context, direct func(context.Context, *Stage) error) (err error) {
	patience := time.AfterFunc(3*time.Second, func() { fmt.Fprintln(os.Stderr, "starting PostgreSQL …") })
	server, err := pgtest.Start(ctx)
	patience.Stop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	url, drop, err := server.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not done within a minute"))
	defer cancel()
	err = direct(ctx, &Stage{URL: url, DB: db})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}
