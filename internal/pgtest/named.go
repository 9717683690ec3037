package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/lib/pq"
)

// names reports whether the user named a server. PGHOST does, because a host without it would be a
// guess. PGUSER and other variables alone do not.
func (m machine) names() bool {
	return m.getenv("DATABASE_URL") != "" || m.getenv("PGHOST") != ""
}

// named returns the server that the user named.
func (m machine) named(ctx context.Context) (*Server, error) {
	u, by, err := m.namedURL()
	if err != nil {
		return nil, err
	}
	unsaid := m.sslmode(u)
	version, err := serverVersion(ctx, u)
	if unsaid && errors.Is(err, pq.ErrSSLNotSupported) {
		setParam(u, "sslmode", "disable")
		version, err = serverVersion(ctx, u)
	}
	if err != nil {
		return nil, fmt.Errorf("pgtest: the server that %s names, %s, cannot be used: %w", by, u.Redacted(), err)
	}
	s := &Server{kind: kindURL, version: version, url: u, running: true}
	open.add(s)
	return s, nil
}

// namedURL returns the URL of the server and the name of the variable it comes
// from.
func (m machine) namedURL() (u *url.URL, by string, err error) {
	if raw := m.getenv("DATABASE_URL"); raw != "" {
		u, err := url.Parse(raw)
		if err != nil { // which quotes the URL, password and all
			return nil, "", errors.New("pgtest: DATABASE_URL is no URL; in a password, escape every special character, as %2F for a slash")
		}
		if u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return nil, "", errors.New("pgtest: DATABASE_URL does not begin with postgres:// or postgresql://")
		}
		if strings.Trim(u.Path, "/") == "" {
			u.Path = "/postgres"
		}
		return u, "DATABASE_URL", nil
	}

	host, port := m.getenv("PGHOST"), m.getenv("PGPORT")
	if host == "" {
		return nil, "", errors.New("pgtest: PGADVISORY_TEST_SERVER=url, but neither DATABASE_URL nor PGHOST names a server")
	}
	if port == "" {
		port = "5432"
	}
	u = &url.URL{Scheme: "postgres", Path: "/postgres"}
	if database := m.getenv("PGDATABASE"); database != "" {
		u.Path = "/" + database
	}
	if user, password := m.getenv("PGUSER"), m.getenv("PGPASSWORD"); password != "" && user != "" {
		u.User = url.UserPassword(user, password)
	} else if user != "" {
		u.User = url.User(user)
	}
	if strings.HasPrefix(host, "/") {
		u.RawQuery = url.Values{"host": {host}, "port": {port}}.Encode()
	} else {
		u.Host = net.JoinHostPort(host, port)
	}
	return u, "PGHOST", nil
}

// sslmode sets how to use SSL, and reports whether the user did not choose. In that case it sets
// require at first: lib/pq does not have libpq's default, which is SSL if the server supports it.
func (m machine) sslmode(u *url.URL) (unsaid bool) {
	mode := u.Query().Get("sslmode")
	if mode == "" {
		mode = m.getenv("PGSSLMODE")
	}
	if mode == "" || mode == "prefer" || mode == "allow" {
		mode, unsaid = "require", true
	}
	setParam(u, "sslmode", mode)
	return unsaid
}

func setParam(u *url.URL, name, value string) {
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
}
