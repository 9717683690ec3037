package main

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// defaultConnectTimeout is in seconds.
const defaultConnectTimeout = "10"

// newConnector returns a connector of pgx.
func newConnector(s settings, application string) (driver.Connector, error) {
	c, err := s.config(application)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*c), nil
}

// config returns the settings as pgx has them. Connections prepare nothing, so that they work through
// poolers in transaction mode.
func (s settings) config(application string) (*pgx.ConnConfig, error) {
	c, err := s.parse()
	if err == nil && c.ConnectTimeout == 0 && s.get("connect_timeout", "PGCONNECT_TIMEOUT") == "" {
		c, err = s.with("connect_timeout", defaultConnectTimeout).parse()
	}
	if err != nil {
		return nil, err
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	params := c.RuntimeParams
	params["application_name"] = cmp.Or(params["application_name"], params["fallback_application_name"], application)
	if err := checkParams(params); err != nil {
		return nil, err
	}
	if to := s.addresses(); len(to) > 0 {
		lookup := c.LookupFunc
		c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			if addrs := to[host]; len(addrs) > 0 {
				return addrs, nil
			}
			return lookup(ctx, host)
		}
	}
	return c, nil
}

// parse has pgx read the settings, and add those of a service, of the environment and of psql's
// defaults.
func (s settings) parse() (*pgx.ConnConfig, error) {
	s = maps.Clone(s)
	delete(s, "hostaddr") // see addresses
	c, err := pgx.ParseConfig(s.String())
	if err == nil {
		return c, nil
	}
	text := "they cannot be read"
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		e.ConnString = "" // it may have a password
		text = strings.TrimPrefix(e.Error(), "cannot parse ``: ")
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		text += ": see sslrootcert, sslcert and sslkey"
	}
	return nil, usage("the connection's settings: %s", text)
}

// libpqOnly are the settings of libpq that pgx does not know, and would send to the server. To ignore
// them changes nothing that matters here; a value other than those listed is refused, because it asks
// for something that pgx cannot do. No values are for: ignored whatever it is.
var libpqOnly = map[string][]string{
	"fallback_application_name": nil, // see config
	"client_encoding":           nil, // pgx reads and writes UTF-8
	"keepalives":                nil, // a Locker asks the server for them
	"keepalives_idle":           nil,
	"keepalives_interval":       nil,
	"keepalives_count":          nil,
	"tcp_user_timeout":          nil,
	"sslcompression":            nil,
	"load_balance_hosts":        {"disable"},
	"channel_binding":           {"disable", "prefer"},
	"gssencmode":                {"disable", "prefer"},
	"gssdelegation":             {"0"},
	"sslcertmode":               {"allow"},
	"sslcrl":                    {""},
	"sslcrldir":                 {""},
	"ssl_min_protocol_version":  {"", "TLSv1", "TLSv1.1", "TLSv1.2"}, // pgx accepts nothing older than TLS 1.2
	"ssl_max_protocol_version":  {""},
	"requirepeer":               {""},
	"require_auth":              {""},
	"hostaddr":                  {""}, // of a service: that of -d and of PGHOSTADDR is read before
}

// checkParams takes out of params what is for the client, and is not known to pgx.
func checkParams(params map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		values, known := libpqOnly[name]
		if !known {
			continue
		}
		if values != nil && !slices.Contains(values, params[name]) {
			return usage("the connection's %s=%s is not supported by the driver, pgx: leave it out", name, params[name])
		}
		delete(params, name)
	}
	return nil
}

// addresses returns the addresses of each host that has some by hostaddr. A host may be there twice.
func (s settings) addresses() map[string][]string {
	to := map[string][]string{}
	hosts, ports, addrs := s.hosts(), s.ports(), strings.Split(s.get("hostaddr", "PGHOSTADDR"), ",")
	for i, addr := range addrs {
		if addr != "" && i < len(hosts) {
			if len(ports) > 1 {
				addr = net.JoinHostPort(addr, ports[i])
			}
			to[hosts[i]] = append(to[hosts[i]], addr)
		}
	}
	return to
}

// tlsRefused is what pgx says if a server does not support TLS.
const tlsRefused = "server refused TLS connection"

// connectFailure returns why pgx could not connect, in one line. pgx tries each address of each host
// with TLS, and again without where that may be; most of its errors are of one cause.
func connectFailure(err error) error {
	e, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	each := []error{e.Unwrap()}
	if joined, ok := e.Unwrap().(interface{ Unwrap() []error }); ok {
		each = joined.Unwrap()
	}
	var texts []string
	for _, err := range each {
		text := causeOf(err)
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	refused := func(text string) bool { return strings.Contains(text, tlsRefused) }
	if others := slices.DeleteFunc(slices.Clone(texts), refused); len(others) > 0 { // those of the attempts without TLS
		texts = others
	}
	return &connectError{strings.Join(texts, "; "), err}
}

// causeOf returns the text of the innermost error that says where and why.
func causeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Sprintf("%s: %s (SQLSTATE %s)", e.Severity, e.Message, e.Code)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Error()
	}
	if inner := errors.Unwrap(err); inner != nil { // without the address
		return inner.Error()
	}
	return err.Error()
}

// A connectError has a shorter text than the error of pgx that it is.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }
