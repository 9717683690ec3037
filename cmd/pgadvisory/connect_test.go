package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestHintsOfConnectionErrors(t *testing.T) {
	const running = "is it running?"
	s := settings{"host": "db1", "dbname": "app", "geqqo": "off"}
	for _, test := range []struct {
		err  error
		code int
		hint string
	}{
		{&pgconn.PgError{Code: "28P01", Message: "password authentication failed"}, exitDenied, "PGPASSWORD"},
		{&pgconn.PgError{Code: "28000", Message: `role "nosuch" does not exist`}, exitDenied, "PGUSER"},
		{&pgconn.PgError{Code: "28000", Message: `no pg_hba.conf entry for host "10.0.0.1"`}, exitDenied, "sslmode"},
		{&pgconn.PgError{Code: "42501", Message: "permission denied for database"}, exitDenied, "GRANT CONNECT"},
		{&pgconn.PgError{Code: "3D000", Message: `database "app" does not exist`}, exitUnavailable, "PGDATABASE"},
		{&pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: geqo"}, exitUnavailable, "leave it out, or in pgbouncer.ini: ignore_startup_parameters = geqo"},
		{&pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter in options: search_path"}, exitUnavailable, "leave it out, or in pgbouncer.ini: ignore_startup_parameters = search_path"},
		{&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "geqqo"`}, exitUsage, "leave it out"},
		{&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "server_version_num"`}, exitUnavailable, "help connection"},
		{&pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}, exitUnavailable, "help connection"},
		{errors.New("tls error: server refused TLS connection"), exitUnavailable, "sslmode=disable"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, exitUnavailable, "sslrootcert"},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "db1"}, exitUnavailable, "sslrootcert"},
		{&fs.PathError{Op: "open", Path: "/none", Err: syscall.ENOENT}, exitUsage, "sslkey"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Name: "db1", IsNotFound: true}}, exitUnavailable, "the host's name"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Name: "db1", IsTemporary: true}}, exitUnavailable, "the host's name"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, exitUnavailable, running},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, exitUnavailable, "help connection"},
		{errors.New("whatever"), exitUnavailable, "help connection"},
	} {
		code, text := explain(s.unreachable(fmt.Errorf("wrapped: %w", test.err)))
		if code != test.code || !strings.Contains(text, test.hint) {
			t.Errorf("%v: exit code %d, %s; want %d, with %q", test.err, code, text, test.code, test.hint)
		}
		if strings.Contains(text, running) && test.hint != running {
			t.Errorf("%v: %s", test.err, text)
		}
	}
}

func TestServerWithoutTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 8)) // SSLRequest
			c.Write([]byte("N"))
			c.Close()
		}
	}()
	_, _, err = settings{"host": "127.0.0.1", "port": fmt.Sprint(l.Addr().(*net.TCPAddr).Port), "sslmode": "require"}.open(t.Context(), "test")
	if code, text := explain(err); code != exitUnavailable || !strings.Contains(text, "sslmode=disable") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// Code 0 of -E is for nobody to take for a lock.
func TestExitIsAnError(t *testing.T) {
	for _, code := range []int{0, exitNo} {
		err := exit(code)
		if err == nil {
			t.Errorf("exit(%d) is nil", code)
			continue
		}
		if got, text := explain(err); got != code || text != "" {
			t.Errorf("exit(%d): exit code %d, %q", code, got, text)
		}
	}
}
