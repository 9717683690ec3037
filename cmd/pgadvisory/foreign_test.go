//go:build linux || darwin || freebsd

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// ls leaves out locks of extensions and says so on stderr, so that what reads its table or
// its JSON sees keys only.
func TestLsLeavesOutLocksOfExtensions(t *testing.T) {
	t.Parallel()
	url := pgtest.NewServer(t).Database(t)
	db := open(t, url)
	pgtest.ShowForeign(t, db)
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, note := range []string{
		"",
		"locks of extensions left out: 1 (on no key, because objsubid is neither 1 nor 2)\n",
		"locks of extensions left out: 2 (on no key, because objsubid is neither 1 nor 2)\n",
	} {
		if i > 0 {
			if _, err := conn.ExecContext(context.Background(), fmt.Sprintf("SELECT pg_advisory_lock(%d, %d)", pgtest.ForeignClass, 4820+i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"ls"}, {"ls", "--json"}} {
			var out, stderr bytes.Buffer
			cmd := exec.Command(program, args...)
			cmd.Env = append(cmd.Environ(), "DATABASE_URL="+url)
			cmd.Stdout, cmd.Stderr = &out, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, &stderr)
			}
			if strings.Contains(out.String(), "482") || stderr.String() != note {
				t.Errorf("with %d locks of extensions, %v says %q and on stderr %q; want no lock and %q", i, args, &out, &stderr, note)
			}
		}
	}
}
