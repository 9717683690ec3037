package advisory_test

import (
	"context"
	"database/sql"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
)

// The same between two hosts, on a link that drops packets: closing is no news to the
// other side there, and the kernels send again what was lost once the link is back.
func TestDeadLinkBetweenHosts(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	dirs, through := []netns.Direction{netns.Both}, drivers[:2]
	if manyDeaths {
		dirs, through = []netns.Direction{netns.Both, netns.Up, netns.Down}, drivers
	}
	for _, dir := range dirs {
		t.Run(dir.String(), func(t *testing.T) {
			pair, err := netns.New(t)
			if err != nil {
				t.Skip(err)
			}
			server := pgtest.Options{
				Netns:    pair.ServerNS,
				Settings: []string{"listen_addresses=" + pair.ServerIP, "max_connections=300"},
			}.NewServer(t)
			lines := linesTo(t, drivers[0].open(t, server.SocketURL()))
			calls := slices.DeleteFunc(slices.Clone(deadCalls), func(c deadCall) bool { return c.bound > 0 })
			link := &droppingLink{pair: pair, dir: dir}
			link.ready.Add(len(calls) * len(through))
			link.done.Add(len(calls) * len(through))
			for _, c := range calls {
				for _, d := range through {
					lines.call(c, d, "", func(t *testing.T, application string) (*pool, mortal) {
						l := &sharedLink{droppingLink: link}
						t.Cleanup(l.leave)
						return d.between(t, pair, withParameter(t, server.URL(), "application_name", application)), l
					})
				}
			}
			lines.wait()
		})
	}
}

// between opens a pool of the client's host, from which pair dials.
func (d driver) between(t *testing.T, pair dialer, url string) *pool {
	t.Helper()
	db, err := openBy(pair, d.sql, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &pool{DB: db, driver: d, x: sqlx.NewDb(db, d.sql)}
}

// openBy opens a pool whose connections by makes.
func openBy(by dialer, driver, url string) (*sql.DB, error) {
	if driver == "pgx" {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.DialFunc = by.DialContext
		return stdlib.OpenDB(*config), nil
	}
	connector, err := pq.NewConnector(url)
	if err != nil {
		return nil, err
	}
	connector.Dialer(by)
	return sql.OpenDB(connector), nil
}

type dialer interface {
	pq.Dialer
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// A droppingLink dies when all of its lines are ready, and revives when their calls are
// done.
type droppingLink struct {
	pair        *netns.Pair
	dir         netns.Direction
	ready, done sync.WaitGroup
	drop, heal  sync.Once
}

type sharedLink struct {
	*droppingLink
	readied, finished sync.Once
}

func (l *sharedLink) dieAt(string) <-chan struct{} {
	l.dieNow()
	dead := make(chan struct{})
	close(dead)
	return dead
}

func (l *sharedLink) dieNow() {
	l.readied.Do(l.ready.Done)
	l.ready.Wait()
	l.drop.Do(func() { l.pair.Drop(l.dir) })
}

func (l *sharedLink) revive() {
	l.finished.Do(l.done.Done)
	l.done.Wait()
	l.heal.Do(l.pair.Heal)
}

// leave is for a line whose test has failed before.
func (l *sharedLink) leave() {
	l.readied.Do(l.ready.Done)
	l.finished.Do(l.done.Done)
}
