package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A target is the server that the flags of a command say.
type target struct{ d string }

// connection declares the flag for the server.
func connection(flags *flag.FlagSet) *target {
	t := &target{}
	flags.StringVar(&t.d, "d", "", "the server's `URL`, else DATABASE_URL, else PGHOST and the like: see pgadvisory help connection")
	return t
}

// settings returns what was given, by the flag or in DATABASE_URL.
func (t *target) settings() (settings, error) {
	d := t.d
	if d == "" {
		d = os.Getenv("DATABASE_URL")
	}
	return parseSettings(d)
}

// open returns a pool of connections that works, to a server that is new enough.
func (t *target) open(ctx context.Context, application string) (*sql.DB, error) {
	s, err := t.settings()
	if err != nil {
		return nil, err
	}
	db, _, err := s.open(ctx, application)
	return db, err
}

// open also returns server_version_num.
func (s settings) open(ctx context.Context, application string) (db *sql.DB, version int, err error) {
	s.complete(application)
	c, err := newConnector(s)
	if err != nil {
		return nil, 0, err
	}
	db = sql.OpenDB(c)
	version, err = look(ctx, db)
	if err == nil {
		return db, version, nil
	}
	db.Close()
	if cause := context.Cause(ctx); cause != nil {
		return nil, 0, cause
	}
	return nil, 0, s.unreachable(err)
}

// newConnector is lib/pq's, which panics when it does not know a setting.
func newConnector(s settings) (c *connector, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = usage("%v by the driver, lib/pq: unset it", r)
		}
	}()
	with := func(mode string) (*pq.Connector, error) {
		c, err := pq.NewConnector(s.with("sslmode", mode).String())
		if err != nil {
			return nil, usage("the connection's settings: %w", err)
		}
		return c, nil
	}
	c = &connector{}
	switch mode := s.sslmode(); mode {
	case "", "prefer", "allow":
		if c.plain, err = with("disable"); err == nil {
			c.first, err = with("require")
		}
	default:
		c.first, err = with(mode)
	}
	return c, err
}

// look looks whether the server answers, and is new enough.
func look(ctx context.Context, db *sql.DB) (version int, err error) {
	var text string
	err = db.QueryRowContext(ctx, "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, pg_catalog.current_setting('server_version')").Scan(&version, &text)
	if err != nil {
		return 0, err
	}
	return version, newEnough(version, text)
}

func newEnough(version int, text string) error {
	if version < lockfn.OldestServer {
		return fail(exitUnavailable, "the server is PostgreSQL %s, which is too old: pgadvisory needs %d or newer", text, lockfn.OldestServer/10000)
	}
	return nil
}

// unreachable says to which server it was that err happened.
func (s settings) unreachable(err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	hint := "is it running? see pgadvisory help connection"
	if e, ok := errors.AsType[*pq.Error](err); ok {
		switch {
		case e.Code.Class() == "28":
			hint = "put the password into ~/.pgpass or PGPASSWORD"
		case e.Code == "3D000":
			hint = "name another by -d or PGDATABASE"
		case e.Code == "42501":
			hint = "GRANT CONNECT ON DATABASE … TO …"
		case e.Code.Class() == "53":
			hint = "the server is full"
		default:
			hint = "see pgadvisory help connection"
		}
	}
	return fmt.Errorf("cannot connect to %s: %w (%s)", s.where(), err, hint)
}
