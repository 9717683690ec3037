package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// noEnvironment takes psql's variables, and the home folder, out of the way.
func noEnvironment(t *testing.T) {
	for _, name := range []string{
		"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE",
		"PGSSLROOTCERT", "PGAPPNAME", "PGOPTIONS", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS", "PGTZ",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

func TestConfig(t *testing.T) {
	noEnvironment(t)
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[billing]\nhost=db7\nport=5439\ndbname=billing\nconnect_timeout=3\napplication_name=of the service\nkeepalives=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSERVICEFILE", services)
	for d, want := range map[string]struct {
		hosts   string
		timeout time.Duration
		params  map[string]string
	}{
		"host=db1": {"db1:5432", 10 * time.Second, map[string]string{"application_name": "pgadvisory ls"}},
		"host=db1 connect_timeout=0 application_name=mine":         {"db1:5432", 0, map[string]string{"application_name": "mine"}},
		"host=db1 connect_timeout=5 fallback_application_name=its": {"db1:5432", 5 * time.Second, map[string]string{"application_name": "its"}},
		"postgres://db1,db2:5433/app":                              {"db1:5432 db2:5433", 10 * time.Second, map[string]string{"application_name": "pgadvisory ls"}},
		"host=db1,db2 port=5439 options=-cgeqo=off tcp_user_timeout=9 channel_binding=prefer load_balance_hosts=disable ssl_min_protocol_version=TLSv1.2": {
			"db1:5439 db2:5439", 10 * time.Second, map[string]string{"application_name": "pgadvisory ls", "options": "-cgeqo=off"},
		},
		"service=billing":          {"db7:5439", 3 * time.Second, map[string]string{"application_name": "of the service"}},
		"service=billing host=db8": {"db8:5439", 3 * time.Second, map[string]string{"application_name": "of the service"}},
	} {
		s, err := parseSettings(d)
		if err == nil {
			err = s.check()
		}
		if err != nil {
			t.Errorf("%s: %v", d, err)
			continue
		}
		s.complete()
		c, err := s.config("pgadvisory ls")
		if err != nil {
			t.Errorf("%s: %v", d, err)
			continue
		}
		hosts := fmt.Sprintf("%s:%d", c.Host, c.Port)
		last := hosts
		for _, f := range c.Fallbacks { // each host with TLS, and without
			if host := fmt.Sprintf("%s:%d", f.Host, f.Port); host != last {
				last, hosts = host, hosts+" "+host
			}
		}
		if hosts != want.hosts || c.ConnectTimeout != want.timeout || !maps.Equal(c.RuntimeParams, want.params) || c.DefaultQueryExecMode != pgx.QueryExecModeExec {
			t.Errorf("%s: %s, %v, %q; want %+v", d, hosts, c.ConnectTimeout, c.RuntimeParams, want)
		}
	}
}

// An address is used in place of the name, which still is the one that the certificate must have.
func TestConfigWithAddresses(t *testing.T) {
	noEnvironment(t)
	s := settings{"host": "db1,db2", "hostaddr": "10.0.0.1,10.0.0.2", "sslmode": "verify-full", "sslrootcert": "system"}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	c, err := s.config("test")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"db1": "10.0.0.1", "db2": "10.0.0.2"} {
		if got, err := c.LookupFunc(t.Context(), host); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, %v", host, got, err)
		}
	}
	if c.Host != "db1" || c.TLSConfig == nil || c.TLSConfig.ServerName != "db1" || len(c.Fallbacks) != 1 || c.Fallbacks[0].TLSConfig.ServerName != "db2" {
		t.Errorf("%+v", c.Config)
	}
}

// A host may have several addresses, one after the other.
func TestAddressesOfOneHost(t *testing.T) {
	noEnvironment(t)
	for ports, want := range map[string][]string{"": {"10.0.0.1", "10.0.0.2"}, "5433,5434": {"10.0.0.1:5433", "10.0.0.2:5434"}} {
		s := settings{"host": "db,db", "hostaddr": "10.0.0.1,10.0.0.2"}
		if ports != "" {
			s["port"] = ports
		}
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		c, err := s.config("test")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.LookupFunc(t.Context(), "db"); err != nil || !slices.Equal(got, want) {
			t.Errorf("ports %q: %v, %v, want %v", ports, got, err, want)
		}
	}
}

func TestSettingsThatTheDriverCannotDo(t *testing.T) {
	noEnvironment(t)
	for _, d := range []string{
		"host=db1 channel_binding=require", "host=db1 gssencmode=require", "host=db1 require_auth=scram-sha-256", "host=db1 requirepeer=postgres",
		"host=db1 sslcrl=/none", "host=db1 load_balance_hosts=random", "host=db1 ssl_min_protocol_version=TLSv1.3", "service=none",
	} {
		s, err := parseSettings(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.config("test"); err == nil {
			t.Errorf("%s: no error", d)
		} else if code, _ := explain(err); code != exitUsage {
			t.Errorf("%s: exit code %d: %v", d, code, err)
		}
	}
}

// Any password comes through the two readings, here and in pgx.
func TestConfigKeepsThePassword(t *testing.T) {
	noEnvironment(t)
	odd := []string{`'`, `\`, `\'`, `'\`, `\\'x`, " ", "a b", "=", "\n", "é", "x' host='evil"}
	check := func(password string) bool {
		if password == "" || strings.ContainsRune(password, 0) || !utf8.ValidString(password) {
			return true
		}
		c, err := settings{"host": "db1", "password": password}.config("test")
		return err == nil && c.Password == password && c.Host == "db1"
	}
	for _, password := range odd {
		if !check(password) {
			t.Errorf("%q", password)
		}
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}
