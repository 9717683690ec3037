package main

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A settings has the settings of a connection, by libpq's names. They may contain a password, so no
// error of its methods quotes its input.
type settings map[string]string

// parseSettings reads a URL, a list of name=value, or the name of a database.
func parseSettings(d string) (settings, error) {
	switch {
	case strings.HasPrefix(d, "postgres://"), strings.HasPrefix(d, "postgresql://"):
		return parseURL(d)
	case strings.Contains(d, "://"):
		return nil, usage("a connection URL begins with postgres://")
	case strings.Contains(d, "="):
		return parseList(d)
	case d == "":
		return settings{}, nil
	}
	return settings{"dbname": d}, nil
}

var settingName = regexp.MustCompile(`^[a-z][a-z_.]*$`)

func parseURL(d string) (settings, error) {
	// An error of url.Parse quotes the URL. If the password has a special character, a part of the
	// password may stand in the place of the port or of a parameter.
	bad := usage("the connection URL cannot be read: in a password, write special characters as in any URL, / as %%2F and # as %%23")
	u, err := url.Parse(d)
	if err != nil && hasSeveralHosts(d) {
		return nil, errSeveralHosts
	}
	if err != nil || u.Fragment != "" || strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@") {
		return nil, bad
	}
	s := settings{}
	set := func(name, value string) {
		if value != "" {
			s[name] = value
		}
	}
	set("user", u.User.Username())
	if password, ok := u.User.Password(); ok {
		set("password", password)
	}
	if host, port, err := net.SplitHostPort(u.Host); err == nil {
		set("host", host)
		set("port", port)
	} else {
		set("host", strings.Trim(u.Host, "[]"))
	}
	set("dbname", strings.TrimPrefix(u.Path, "/"))
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad
	}
	for name := range query {
		if !settingName.MatchString(name) {
			return nil, bad
		}
		set(name, query.Get(name))
	}
	return s, nil
}

var errSeveralHosts = usage("several hosts are not supported by the driver, lib/pq: name one")

// hasSeveralHosts reports whether a URL that cannot be parsed has several hosts. An @ after the
// hosts shows that they are a part of the password.
func hasSeveralHosts(d string) bool {
	_, rest, _ := strings.Cut(d, "://")
	hosts := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		hosts, rest = rest[:end], rest[end:]
		if strings.Contains(rest, "@") {
			return false
		}
	}
	return strings.Contains(hosts[strings.LastIndex(hosts, "@")+1:], ",")
}

// check returns an error for settings that lib/pq would refuse only when it connects.
func (s settings) check() error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if strings.ContainsRune(s[name], 0) { // it would end the value, and begin another setting
			return usage("the connection's %s has a NUL byte", name)
		}
	}
	if strings.Contains(s.get("host", "PGHOST"), ",") {
		return errSeveralHosts
	}
	if port, err := strconv.Atoi(s.port()); err != nil || port < 1 || port > 65535 {
		return usage("the connection's port is a number from 1 to 65535")
	}
	if _, err := strconv.Atoi(cmp.Or(s.get("connect_timeout", "PGCONNECT_TIMEOUT"), "0")); err != nil {
		return usage("the connection's connect_timeout is a number of seconds")
	}
	modes := []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
	if !slices.Contains(modes, s.sslmode()) {
		return usage("the connection's sslmode is one of %s", strings.Join(modes[1:], ", "))
	}
	return nil
}

// parseList reads name=value pairs. Values with spaces are in quotes.
func parseList(d string) (settings, error) {
	bad := usage(`the connection's settings cannot be read: write them as "host=db1 dbname=app", with single quotes around values that have spaces`)
	s := settings{}
	rest := []rune(d)
	skip := func() {
		for len(rest) > 0 && unicode.IsSpace(rest[0]) {
			rest = rest[1:]
		}
	}
	for skip(); len(rest) > 0; skip() {
		end := slices.Index(rest, '=')
		if end < 0 {
			return nil, bad
		}
		name := strings.TrimSpace(string(rest[:end]))
		if !settingName.MatchString(name) {
			return nil, bad
		}
		rest = rest[end+1:]
		skip()
		quoted := len(rest) > 0 && rest[0] == '\''
		if quoted {
			rest = rest[1:]
		}
		var value []rune
		for {
			if len(rest) == 0 {
				if quoted {
					return nil, bad
				}
				break
			}
			r := rest[0]
			if quoted && r == '\'' || !quoted && unicode.IsSpace(r) {
				rest = rest[1:]
				break
			}
			if r == '\\' && len(rest) > 1 {
				rest = rest[1:]
				r = rest[0]
			}
			value = append(value, r)
			rest = rest[1:]
		}
		s[name] = string(value)
	}
	return s, nil
}

// String returns the settings in the form that lib/pq reads.
func (s settings) String() string {
	escape := strings.NewReplacer(`'`, `\'`, `\`, `\\`)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		list = append(list, name+"='"+escape.Replace(s[name])+"'")
	}
	return strings.Join(list, " ")
}

// with returns a copy of s with one more setting.
func (s settings) with(name, value string) settings {
	s = maps.Clone(s)
	s[name] = value
	return s
}

// get returns a setting, or the value of its environment variable.
func (s settings) get(name, variable string) string {
	if v := s[name]; v != "" {
		return v
	}
	return os.Getenv(variable)
}

func (s settings) sslmode() string { return s.get("sslmode", "PGSSLMODE") }

// complete adds the defaults of psql and of pgadvisory that lib/pq does not have.
func (s settings) complete(application string) {
	if s.get("host", "PGHOST") == "" {
		for _, dir := range []string{"/var/run/postgresql", "/tmp"} {
			if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL."+s.port())); err == nil {
				s["host"] = dir
				break
			}
		}
	}
	if s.get("connect_timeout", "PGCONNECT_TIMEOUT") == "" {
		s["connect_timeout"] = "10"
	}
	if s["fallback_application_name"] == "" {
		s["fallback_application_name"] = application
	}
}

func (s settings) port() string {
	if port := s.get("port", "PGPORT"); port != "" {
		return port
	}
	return "5432"
}

// where returns the server and the database, without the password.
func (s settings) where() string {
	host := s.get("host", "PGHOST")
	if host == "" {
		host = "localhost"
	}
	where := host + ":" + s.port()
	if strings.HasPrefix(host, "/") {
		where = fmt.Sprintf("%s/.s.PGSQL.%s", host, s.port())
	}
	if db := s.get("dbname", "PGDATABASE"); db != "" {
		where += ", database " + db
	}
	return where
}
