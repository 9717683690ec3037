//go:build linux || darwin || freebsd

package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Of a standby and a primary, locks are taken on the one that target_session_attrs asks for, whichever
// comes first. Without it a standby that comes first is refused.
func TestSeveralHosts(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	standby, primary := harness.Standby(t), pgtest.NewServer(t)
	list := func(servers ...*pgtest.Server) string {
		var hosts, ports []string
		for _, s := range servers {
			u, err := url.Parse(s.SocketURL())
			if err != nil {
				t.Fatal(err)
			}
			hosts, ports = append(hosts, u.Query().Get("host")), append(ports, u.Query().Get("port"))
			if port := u.Port(); port != "" {
				ports[len(ports)-1] = port
			}
		}
		return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres", strings.Join(hosts, ","), strings.Join(ports, ","))
	}
	for _, d := range []string{
		list(standby, primary) + " target_session_attrs=primary",
		list(standby, primary) + " target_session_attrs=read-write",
		list(primary, standby),
	} {
		p := pgadvisory(t, d, "run", "1", "--", "echo", "ran")
		if line, code := p.line(), p.ends(); line != "ran" || code != 0 {
			t.Errorf("%s: %q, exit code %d: %s", d, line, code, p.stderr)
		}
	}
	p := pgadvisory(t, list(standby, primary), "run", "1", "--", "echo", "ran")
	if code := p.ends(); code != exitUnavailable || !strings.Contains(p.stderr.String(), "standby") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	for timeout, want := range map[string]string{"": "warning  connect_timeout: not set, for 2 hosts", " connect_timeout=3": "ok       connect_timeout: 3s for each of 2 hosts"} {
		p := pgadvisory(t, list(standby, primary)+" target_session_attrs=primary"+timeout, "check")
		found := false
		for line := p.line(); line != ""; line = p.line() {
			found = found || strings.HasPrefix(line, want)
		}
		if code := p.ends(); code != 0 || !found {
			t.Errorf("check%s: exit code %d, nothing of %q: %s", timeout, code, want, p.stderr)
		}
	}
	p = pgadvisory(t, list(standby)+" target_session_attrs=primary", "ls")
	if code := p.ends(); code != exitUnavailable {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}
