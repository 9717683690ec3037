package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A target is the server that the flags of a command select.
type target struct{ d string }

// connection declares the flag for the server.
func connection(flags *flag.FlagSet) *target {
	t := &target{}
	flags.StringVar(&t.d, "d", "", "the server's `URL`, else DATABASE_URL, else PGHOST and its siblings: see pgadvisory help connection")
	return t
}

// settings returns the settings of the flag or of DATABASE_URL.
func (t *target) settings() (settings, error) {
	d := t.d
	if d == "" {
		d = os.Getenv("DATABASE_URL")
	}
	s, err := parseSettings(d)
	if err != nil {
		return nil, err
	}
	return s, s.check()
}

// open returns a connected pool. It fails if the server is not reachable or too old.
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
	s.complete()
	c, err := newConnector(s, application)
	if err != nil {
		return nil, 0, err
	}
	db = sql.OpenDB(c)
	version, err = readVersion(ctx, db)
	if err == nil {
		return db, version, nil
	}
	db.Close()
	if cause := context.Cause(ctx); cause != nil {
		return nil, 0, cause
	}
	return nil, 0, s.unreachable(err)
}

// readVersion returns the version of the server. It fails if the server does not answer or is too
// old.
func readVersion(ctx context.Context, db *sql.DB) (version int, err error) {
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

// unreachable adds to err the server that it came from, and what to do.
func (s settings) unreachable(err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	err = connectFailure(err)
	hint, code := s.hint(err)
	err = fmt.Errorf("cannot connect to %s: %w (%s)", s.where(), err, hint)
	if code != 0 {
		return &failure{code, err}
	}
	return err
}

// hint returns what to do about err. The exit code is 0 if err itself determines it.
func (s settings) hint(err error) (hint string, code int) {
	const help = "see pgadvisory help connection"
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case strings.HasPrefix(e.Message, "unsupported startup parameter"): // the text of PgBouncer, which it does not translate
			name := e.Message[strings.LastIndex(e.Message, " ")+1:]
			return "leave it out, or in pgbouncer.ini: ignore_startup_parameters = " + name, 0
		case (e.Code == "42704" || e.Code == "22023") && s.mentionedIn(e.Message):
			return "leave it out, or correct it: a setting that the driver, pgx, does not know goes to the server", exitUsage
		case e.Code == "28P01":
			return "put the password into ~/.pgpass or PGPASSWORD", 0
		case strings.HasPrefix(e.Code, "28") && strings.Contains(e.Message, "pg_hba.conf"):
			return "the server's pg_hba.conf lists who may connect from where, and whether with TLS: see sslmode", 0
		case strings.HasPrefix(e.Code, "28"):
			return "name another role by PGUSER or in -d", 0
		case e.Code == "3D000":
			return "name another by -d or PGDATABASE", 0
		case e.Code == "42501":
			return "GRANT CONNECT ON DATABASE … TO …", 0
		case strings.HasPrefix(e.Code, "53"):
			return "the server has no free connection, or not enough memory or disk space: try later", 0
		}
		return help, 0
	}
	if strings.Contains(err.Error(), tlsRefused) {
		return "sslmode requires TLS: leave sslmode out, or use sslmode=disable, to connect without", 0
	}
	if isTLS(err) {
		return "see sslmode and sslrootcert, which control the check of the server's certificate", 0
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return "see sslrootcert, sslcert and sslkey", exitUsage // only opening a file fails like this, not connecting to a socket
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "is this the host's name? " + help, 0
		}
		return "the host's name cannot be resolved now: try later", 0
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return "is it running? " + help, 0
	}
	return help, 0
}

// mentionedIn reports whether a message of the server names a setting of s.
func (s settings) mentionedIn(message string) bool {
	for name := range s {
		if strings.Contains(message, `"`+name+`"`) {
			return true
		}
	}
	return false
}

// isTLS reports whether err is about a certificate, or about a peer that does not speak TLS.
func isTLS(err error) bool {
	_, chain := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return chain || authority || host || invalid || alert || record
}
