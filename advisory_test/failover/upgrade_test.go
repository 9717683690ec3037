//go:build unix

package failover_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// pg_upgrade makes a new system on timeline 1, which goes on with the old one's transaction ids. Over
// it the tokens of a server that was promoted go back, and with the epoch of the documentation they
// grow. No Locker takes the new server for an old primary.
func TestTokensOverPgUpgrade(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	server := r.Standbys[0]
	server.Promote()
	if err := r.Primary.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	clients := newTokenClients(t, server.URL())
	var greatest uint64
	for _, c := range clients {
		_, greatest = draw(t, c.l, 20)
	}
	is(t, greatest, 2, "greater than", 0)

	newSystem(t, server.Server, func() { server.Upgrade(t) })
	for _, c := range clients {
		back, _ := draw(t, c.l, 20)
		is(t, back, 1, "no greater than", greatest)
		if xid(back) <= xid(greatest) {
			t.Errorf("%s: the transaction id %d after %d", c.name, xid(back), xid(greatest))
		}
		is(t, drawWith(t, c.db, locker.WithTokenEpoch(2)), 3, "greater than", greatest)
	}
}

// A dump is restored into a new cluster, whose transaction ids begin anew too. So tokens go back even
// where no standby was ever promoted.
func TestTokensOverDumpAndRestore(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	own, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(own.Path, "/")
	clients := newTokenClients(t, own.String())
	if _, err := clients[0].db.Exec("CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	var greatest uint64
	for _, c := range clients {
		_, greatest = draw(t, c.l, 100)
	}
	is(t, greatest, 1, "greater than", 0)

	server.Dump(t, name)
	newSystem(t, server, func() { server.Renew(t) })
	execute(t, server, "CREATE DATABASE "+name+" TEMPLATE template0")
	server.RestoreDump(t, name)
	if answer := harness.Ask[int](t, clients[0].db, "SELECT answer FROM kept"); answer != 42 {
		t.Errorf("restored: %d", answer)
	}
	for _, c := range clients {
		is(t, drawOne(t, c.l), 1, "no greater than", greatest)
		is(t, drawWith(t, c.db, locker.WithTokenEpoch(1)), 2, "greater than", greatest)
	}
}

// newSystem stops the server, and checks that another system is in its place afterwards.
func newSystem(t *testing.T, server *pgtest.Server, replace func()) {
	t.Helper()
	const identifier = "SELECT system_identifier FROM pg_control_system()"
	before := ask[int64](t, server, identifier)
	stopped(t, server)
	replace()
	if after := ask[int64](t, server, identifier); after == before {
		t.Fatalf("the system identifier is still %d", after)
	}
}

func execute(t *testing.T, server *pgtest.Server, statement string) {
	t.Helper()
	db := harness.Drivers[0].Open(t, server.SocketURL())
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}
