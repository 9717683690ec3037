package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/interop"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// hostileTexts are texts that the server can store.
var hostileTexts = []string{
	`a\`, `\`, `\'`, `a\'; SELECT 1/0; --`, `'`, `''`, `'||(1/0)||'`, `'); SELECT 1/0; --`,
	`"`, `$$`, `$pgadvisory$`, `$1`, `/*`, `*/`, `*/ SELECT 1/0`, `-- `, "\n", "\\\n'", `E'\'`, `\000`, `\x41`, `\u0041`, "%s%d", "é\\", "\u2028",
	strings.Repeat(`\'`, 5000),
}

// unstorable are those that it cannot.
var unstorable = []string{"a\x00b", "\xff", "a\xc3", "\x00"}

// A server may read '\' in a literal as an escape or as itself. No text that a caller chose, and
// no statement of the library, means another thing there.
func TestTextsOfAnyKindOnRolesWithEitherKindOfLiteral(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	// The four tests below may prepare theirs at the same moment.
	server := pgtest.NewServer(t, "max_connections=100", fmt.Sprintf("max_prepared_transactions=%d", 4*len(hostileTexts)))
	for _, conforming := range []string{"off", "on"} {
		for _, d := range harness.Drivers[:2] {
			t.Run(conforming+", "+d.Name, func(t *testing.T) {
				t.Parallel()
				url := harness.Unprivileged(t, server)
				p := d.Open(t, url)
				harness.DoSQL(t, p, "ALTER ROLE CURRENT_USER SET standard_conforming_strings = "+conforming)
				p.Close()
				p = d.Open(t, url)
				if got := harness.Ask[string](t, p, "SHOW standard_conforming_strings"); got != conforming {
					t.Fatal(got)
				}
				t.Run("application names", func(t *testing.T) { namesOfApplications(t, p) })
				t.Run("labels and keys", func(t *testing.T) { labelsAndKeys(t, p) })
				t.Run("pasted SQL", func(t *testing.T) { pastedSQL(t, p) })
				t.Run("deadlock", func(t *testing.T) { deadlockIsFound(t, p) })
			})
		}
	}
	if log := server.Log(); strings.Contains(log, "nonstandard use") {
		t.Error("the server warns of backslashes in the library's literals")
	}
}

func namesOfApplications(t *testing.T, p *harness.Pool) {
	conn := p.NewConn(t)
	for _, s := range hostileTexts {
		// As the server has it, for it cuts and cleans.
		want := harness.Ask[string](t, conn, "SELECT set_config('application_name', $1, false)", s)
		l := locker.New(p.DB, locker.WithApplicationName(s), locker.WithoutServerCheck())
		lock, ok, err := l.TryLock(t.Context(), harness.Key)
		if !ok || err != nil {
			t.Errorf("%.20q: %v, %v", s, ok, err)
		} else {
			holders, err := inspect.Holders(t.Context(), p.DB, harness.Key)
			if err != nil || len(holders) != 1 || holders[0].Application != want {
				t.Errorf("%.20q: the holder is %v, want %q, %v", s, holders, want, err)
			}
			if err := lock.Unlock(); err != nil {
				t.Errorf("%.20q: %v", s, err)
			}
		}
		l.Close()
	}
	for _, s := range unstorable {
		l := locker.New(p.DB, locker.WithApplicationName(s))
		for what, err := range map[string]error{"Ping": l.Ping(t.Context()), "TryLock": harness.Third(l.TryLock(t.Context(), harness.Key))} {
			if err == nil || !strings.Contains(err.Error(), "WithApplicationName(") {
				t.Errorf("%q: %s: %v", s, what, err)
			}
		}
		l.Close()
	}
}

func labelsAndKeys(t *testing.T, p *harness.Pool) {
	conn := p.NewConn(t)
	l := p.Locker(t)
	for _, s := range append(append([]string{}, hostileTexts...), unstorable...) {
		label := advisory.Label(s)
		keys := map[string]advisory.Key{"Name": advisory.Name(s), "HashText": advisory.HashText(s), "golang-migrate": interop.GolangMigrate(s, s, s)}
		if slices.Contains(unstorable, s) {
			if keys["HashText"] != (advisory.Key{}) {
				t.Errorf("%q: the server has no such text, but it has the key %v", s, keys["HashText"])
			}
			delete(keys, "HashText")
		}
		for what, k := range keys {
			for call, err := range map[string]error{
				"sqlconn.Lock":  errors.Join(sqlconn.Lock(t.Context(), conn, k, label), sqlconn.Unlock(t.Context(), conn, k, label)),
				"sqlconn plain": errors.Join(sqlconn.Lock(t.Context(), conn, k, label, sqlconn.PlainWait()), sqlconn.Unlock(t.Context(), conn, k, label)),
				"xact.Do":       p.TxDo(t.Context(), k, func(context.Context, xact.Tx) error { return nil }, label),
				"Locker.Do":     l.Do(t.Context(), k, func(context.Context) error { return nil }, label),
				"GooseLocker":   adapt.Goose(k, label).SessionLock(t.Context(), conn.(*sql.Conn)),
			} {
				if err != nil {
					t.Errorf("%.20q: %s of %s: %v", s, call, what, err)
				}
			}
			if err := sqlconn.UnlockAll(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// pastedSQL does what inspect says to do of transactions that were prepared under such names.
func pastedSQL(t *testing.T, p *harness.Pool) {
	prepared := 0
	for i, s := range hostileTexts {
		if len(s) >= 200 {
			continue
		}
		conn := p.NewConn(t)
		harness.DoSQL(t, conn, "BEGIN")
		harness.DoSQL(t, conn, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", i))
		// A name that no other has: they are one server's.
		harness.DoSQL(t, conn, "PREPARE TRANSACTION "+pq.QuoteLiteral(s+harness.Ask[string](t, p, "SELECT current_user::text")))
		conn.Close()
		prepared++
	}
	time.Sleep(2100 * time.Millisecond) // the least that After takes
	list, err := inspect.Suspects(t.Context(), p.DB, inspect.After(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if strings.HasPrefix(s.SQL, "ROLLBACK PREPARED") {
			harness.DoSQL(t, p, s.SQL)
			prepared--
		}
	}
	if prepared != 0 {
		t.Errorf("%d prepared transactions were not suspect", prepared)
	}
	p.NoLocks(t)
}

// deadlockIsFound: the search for it matches the text of others' statements.
func deadlockIsFound(t *testing.T, p *harness.Pool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keys := []advisory.Key{advisory.Name("a"), advisory.Pair(1, 2)}
	var conns []sqlconn.Conn
	for _, k := range keys {
		conn := p.NewConn(t)
		harness.TryLock(t, conn, k)
		conns = append(conns, conn)
	}
	told := make(chan error, 2)
	var ended sync.WaitGroup
	defer ended.Wait() // before the connections are closed
	for i, conn := range conns {
		ended.Go(func() {
			err := sqlconn.Lock(ctx, conn, keys[1-i])
			told <- err
			sqlconn.UnlockAll(context.Background(), conn)
		})
	}
	found := 0
	for range conns {
		switch err := <-told; {
		case errors.Is(err, advisory.ErrDeadlock):
			found++
		case err != nil:
			t.Error(err)
		}
	}
	if found != 1 {
		t.Errorf("%d waiters were told of the deadlock, not one", found)
	}
}
