//go:build linux

package pgtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A clean clone, on a machine that has Go and make alone: first as a user without rights, then as
// root.
func TestDemoOnABareMachine(t *testing.T) {
	Slow(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, for chroot")
	}
	if out, err := exec.Command("git", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("there is no repository to clone: %v: %s", err, out)
	}
	jar, sum := localArchive(t)
	maven, requests := repository(t, jar)

	bare := exec.Command("../../scripts/bare-machine.sh", "sh", "-euc", `
		for name in postgres initdb psql docker cc git npm; do ! command -v $name || exit 1; done
		export GOCACHE=/tmp/go-build GOMODCACHE=/tmp/go-mod
		HOME=/home setpriv --reuid=1234 --regid=1234 --clear-groups make demo
		make demo
		find $GOMODCACHE/cache/download -name '*.zip'`)
	bare.Env = []string{"PGADVISORY_TEST_MAVEN=" + maven, "PGADVISORY_TEST_SHA256=" + sum}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PGADVISORY_TEST_") {
			bare.Env = append(bare.Env, entry)
		}
	}
	text, err := bare.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := string(text)
	for want, times := range map[string]int{
		"PostgreSQL is not on this machine: fetching it once":    2,
		"every round had one winner, and all work was done once": 2,
		"/home/.cache/pgadvisory/embedded/":                      1,
		"/var/cache/pgadvisory/embedded/":                        1,
		".zip\n":                                                 2,
		"/lib/pq/@v/":                                            1,
		"/xz/@v/":                                                1,
	} {
		if n := strings.Count(out, want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d downloads", n)
	}
	if t.Failed() {
		t.Log(out)
	}
}
