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
	name, _, list := strings.Cut(d, "=")
	switch {
	case list && settingName.MatchString(strings.TrimSpace(name)):
		return parseList(d)
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
	user, hosts, rest := splitURL(d)
	u, err := url.Parse("postgres://" + user + rest)
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
	host, port, ok := splitHosts(hosts)
	if !ok {
		return nil, bad
	}
	set("host", host)
	set("port", port)
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
	if s["ssl"] == "true" { // as in JDBC
		delete(s, "ssl")
		s["sslmode"] = "require"
	}
	return s, nil
}

// splitURL returns the parts of a URL: what ends with the @ after user and password, the hosts, and
// the rest.
func splitURL(d string) (user, hosts, rest string) {
	_, d, _ = strings.Cut(d, "://")
	hosts = d
	if end := strings.IndexAny(d, "/?#"); end >= 0 {
		hosts, rest = d[:end], d[end:]
	}
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	return user, hosts, rest
}

// splitHosts returns the hosts and the ports of a URL, each as a list with commas. If none has a port,
// port is "".
func splitHosts(list string) (host, port string, ok bool) {
	var hosts, ports []string
	given := false
	for each := range strings.SplitSeq(list, ",") {
		name, number := each, ""
		if i := strings.LastIndex(each, ":"); i > strings.LastIndex(each, "]") {
			name, number = each[:i], each[i+1:]
			if _, err := strconv.ParseUint(number, 10, 16); err != nil {
				return "", "", false
			}
			given = true
		}
		inner, bracketed := strings.CutPrefix(name, "[")
		if bracketed {
			name, bracketed = strings.CutSuffix(inner, "]")
			if !bracketed || net.ParseIP(name) == nil {
				return "", "", false
			}
		} else if strings.ContainsAny(name, "[]: ") {
			return "", "", false
		}
		name, err := url.PathUnescape(name)
		if err != nil || name == "" && list != "" && list != each {
			return "", "", false
		}
		hosts, ports = append(hosts, name), append(ports, cmp.Or(number, defaultPort))
	}
	if given {
		port = strings.Join(ports, ",")
	}
	return strings.Join(hosts, ","), port, true
}

// check returns an error for settings that are wrong, in words of psql's. Those of a service are not
// among them.
func (s settings) check() error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if strings.ContainsRune(s[name], 0) { // it would end the value, and begin another setting
			return usage("the connection's %s has a NUL byte", name)
		}
	}
	ports := s.ports()
	for _, p := range ports {
		if port, err := strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return usage("the connection's port is a number from 1 to 65535, or one for each host")
		}
	}
	if n := len(s.hosts()); len(ports) > 1 && len(ports) != n {
		return usage("the connection has %d ports for %d hosts: give one for all, or one for each", len(ports), n)
	}
	if addrs := s.get("hostaddr", "PGHOSTADDR"); addrs != "" && len(strings.Split(addrs, ",")) != len(s.hosts()) {
		return usage("the connection's hostaddr has not as many addresses as there are hosts")
	}
	if _, err := strconv.Atoi(cmp.Or(s.get("connect_timeout", "PGCONNECT_TIMEOUT"), "0")); err != nil {
		return usage("the connection's connect_timeout is a number of seconds")
	}
	modes := []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
	if !slices.Contains(modes, s.sslmode()) {
		return usage("the connection's sslmode is one of %s", strings.Join(modes[1:], ", "))
	}
	attrs := []string{"", "any", "read-write", "read-only", "primary", "standby", "prefer-standby"}
	if !slices.Contains(attrs, s.get("target_session_attrs", "PGTARGETSESSIONATTRS")) {
		return usage("the connection's target_session_attrs is one of %s", strings.Join(attrs[1:], ", "))
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

// String returns the settings in the form that pgx reads.
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

const defaultPort = "5432"

// complete adds the host: the address if there is no name, else the local Unix socket if there is one.
func (s settings) complete() {
	if s.get("host", "PGHOST") != "" || s.service() != "" {
		return
	}
	if addrs := s.get("hostaddr", "PGHOSTADDR"); addrs != "" {
		s["host"] = addrs
		return
	}
	s["host"] = "localhost"
	for _, dir := range []string{"/var/run/postgresql", "/tmp"} {
		if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL."+s.ports()[0])); err == nil {
			s["host"] = dir
			break
		}
	}
}

func (s settings) service() string { return s.get("service", "PGSERVICE") }

// hosts returns the hosts in the order in which they are tried. It may be of one that is "".
func (s settings) hosts() []string {
	return strings.Split(cmp.Or(s.get("host", "PGHOST"), s.get("hostaddr", "PGHOSTADDR")), ",")
}

// ports returns the ports of the hosts, or one for all of them.
func (s settings) ports() []string {
	return strings.Split(cmp.Or(s.get("port", "PGPORT"), defaultPort), ",")
}

// where returns the servers and the database, without the password.
func (s settings) where() string {
	var where []string
	ports := s.ports()
	for i, host := range s.hosts() {
		port := ports[min(i, len(ports)-1)]
		switch {
		case host == "" && s.service() != "":
			return "the service " + s.service()
		case strings.HasPrefix(host, "/"):
			where = append(where, fmt.Sprintf("%s/.s.PGSQL.%s", host, port))
		default:
			where = append(where, cmp.Or(host, "localhost")+":"+port)
		}
	}
	text := strings.Join(where, ", ")
	if db := s.get("dbname", "PGDATABASE"); db != "" {
		text += ", database " + db
	}
	return text
}
