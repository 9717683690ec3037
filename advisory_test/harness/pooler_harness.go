package harness

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
)

// PoolerRounds is how often a check is made in each of the settings below: a few times, or
// as often as PGADVISORY_POOLER_ROUNDS says.
func PoolerRounds(t testing.TB) int { return Number(t, "PGADVISORY_POOLER_ROUNDS", 2) }

// A Pooling is a way in which PgBouncer hands out sessions of the server.
type Pooling struct {
	pgbouncer.Options
	Clients int // busy beside the test
}

func (p Pooling) String() string {
	s := fmt.Sprintf("%s, %d sessions", p.Mode, p.PoolSize)
	if p.RoundRobin {
		s += " in turn"
	}
	if p.Clients > 0 {
		s += fmt.Sprintf(", %d busy clients", p.Clients)
	}
	return s
}

// UnsafePoolings are those in which session-level locks are fake.
func UnsafePoolings() (all []Pooling) {
	for _, mode := range []string{pgbouncer.Transaction, pgbouncer.Statement} {
		for _, size := range []int{1, 2, 8} {
			for _, inTurn := range []bool{false, true} {
				for _, clients := range []int{0, 12} {
					if inTurn && size == 1 {
						continue
					}
					all = append(all, Pooling{pgbouncer.Options{Mode: mode, PoolSize: size, RoundRobin: inTurn}, clients})
				}
			}
		}
	}
	return all
}

// Start starts the PgBouncer, with as many open sessions as it may have, and with its busy
// clients.
func (p Pooling) Start(t testing.TB, serverURL string) (url string) {
	t.Helper()
	url = pgbouncer.New(t, serverURL, p.Options)
	open := Drivers[0].Open(t, url)
	var all sync.WaitGroup
	for range p.PoolSize {
		all.Go(func() { open.Exec("SELECT pg_sleep(0.2)") })
	}
	all.Wait()
	open.Close()
	if p.Clients > 0 {
		p.load(t, url)
	}
	return url
}

// load keeps clients busy until the end of the test.
func (p Pooling) load(t testing.TB, url string) {
	ctx, stop := context.WithCancel(context.Background())
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(p.Clients)
	db.SetMaxIdleConns(p.Clients)
	var all sync.WaitGroup
	var failed sync.Once
	for range p.Clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := db.Exec("SELECT pg_sleep(0.001)"); err != nil {
					failed.Do(func() { t.Errorf("a busy client: %v", err) })
					return
				}
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait(); db.Close() })
}
