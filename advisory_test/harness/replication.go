//go:build unix

package harness

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

// A Replication is a primary and its standbys: servers of the test's own, on loopback. Each standby
// streams through a proxy of its own. The names of the servers are a, for the primary, b, c, ….
type Replication struct {
	Primary  *Node
	Standbys []*Node

	t testing.TB
}

// A Node is a server of a [Replication], primary or standby.
type Node struct {
	*pgtest.Server
	Name string
	// Watch is a pool that goes past all proxies, over the socket.
	Watch *sql.DB

	t    testing.TB
	link *proxy.Proxy // to what it streams from; nil for the first primary
}

// NewReplication starts a primary and standbys, and waits until all stream. The settings are for all
// of them.
func NewReplication(t testing.TB, standbys int, settings ...string) *Replication {
	t.Helper()
	settings = append([]string{"wal_keep_size=256MB", "wal_level=replica", "max_wal_senders=10"}, settings...)
	server := pgtest.NewServer(t, settings...)
	if server.Kind() != "binaries" {
		t.Skip("the data folder of this server is out of reach")
	}
	r := &Replication{t: t, Primary: newNode(t, server, "a")}
	for range standbys {
		r.AddStandby(r.Primary)
	}
	return r
}

func newNode(t testing.TB, server *pgtest.Server, name string) *Node {
	t.Helper()
	return &Node{Server: server, Name: name, Watch: Drivers[0].Open(t, server.SocketURL()).DB, t: t}
}

// AddStandby adds a standby of primary, and waits until it streams.
func (r *Replication) AddStandby(primary *Node) *Node {
	r.t.Helper()
	name := string(rune('b' + len(r.Standbys)))
	link, up := upstream(r.t, primary, name)
	n := newNode(r.t, up.NewStandby(r.t), name)
	n.link = link
	r.Standbys = append(r.Standbys, n)
	n.CatchUp(primary)
	return n
}

func upstream(t testing.TB, primary *Node, name string) (*proxy.Proxy, pgtest.Upstream) {
	t.Helper()
	link := proxy.New(t, primary.Addr())
	return link, pgtest.Upstream{Primary: primary.Server, Addr: link.Addr(), Name: name}
}

// DSN returns the data source name of the nodes' maintenance database with all their hosts, in this
// order, for drivers that try one after the other until a primary answers.
func DSN(t testing.TB, nodes ...*Node) string {
	t.Helper()
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.Addr()
	}
	return DSNOf(t, nodes[0].URL(), addrs...)
}

// DSNOf is [DSN] for the addresses, which may be those of proxies.
func DSNOf(t testing.TB, serverURL string, addrs ...string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	var hosts, ports []string
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	password, _ := u.User.Password()
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s sslmode=disable target_session_attrs=read-write",
		strings.Join(hosts, ","), strings.Join(ports, ","), u.User.Username(), password, strings.TrimPrefix(u.Path, "/"))
}

// Promote makes a primary of a standby. It returns when the server accepts writes.
func (n *Node) Promote() {
	n.t.Helper()
	if err := n.Server.Promote(); err != nil {
		n.t.Fatalf("promote %s: %v", n.Name, err)
	}
}

// Cut stops the replication to this standby, as a link that drops all packets does. The two servers
// run on.
func (n *Node) Cut() { n.link.Freeze(proxy.Both) }

// Heal undoes Cut. What either side sent meanwhile arrives.
func (n *Node) Heal() { n.link.Thaw() }

// Reset breaks the connection to what this standby streams from. It connects again.
func (n *Node) Reset() { n.link.CutAll() }

// Lag makes a standby apply commits only d after they happened. A promotion ends the delay, and
// applies what was received: Cut loses commits, Lag does not.
func (n *Node) Lag(d time.Duration) {
	n.t.Helper()
	n.Set("recovery_min_apply_delay", fmt.Sprintf("%dms", d.Milliseconds()))
}

// Synchronous sets synchronous_standby_names of a primary, such as "b" or "ANY 1 (b, c)".
func (n *Node) Synchronous(names string) {
	n.t.Helper()
	n.Set("synchronous_standby_names", names)
	// Commits follow the checkpointer's view of the setting, which it renews before a checkpoint.
	n.Exec("CHECKPOINT")
}

// Set changes a setting of the running server, and waits until sessions see it.
func (n *Node) Set(name, value string) {
	n.t.Helper()
	loaded := Ask[time.Time](n.t, n.Watch, "SELECT pg_conf_load_time()")
	n.Exec("ALTER SYSTEM SET " + name + " = '" + strings.ReplaceAll(value, "'", "''") + "'")
	n.Exec("SELECT pg_reload_conf()")
	Eventually(n.t, n.Name+" has loaded "+name, func() bool {
		var at time.Time
		return n.Watch.QueryRow("SELECT pg_conf_load_time()").Scan(&at) == nil && at.After(loaded)
	})
}

// Exec runs a statement on the server, past all proxies.
func (n *Node) Exec(statement string) {
	n.t.Helper()
	if _, err := n.Watch.Exec(statement); err != nil {
		n.t.Fatalf("%s: %s: %v", n.Name, statement, err)
	}
}

// Follow makes a standby stream from primary, through a new proxy, and starts it if it is stopped. A
// stopped primary becomes a standby, which works if it has written nothing that primary does not
// have. Rebuild makes it one in any case.
func (n *Node) Follow(primary *Node) {
	n.t.Helper()
	n.attach(primary, n.Server.Follow)
}

// Rebuild makes a stopped server a standby of primary, with a fresh copy of its data.
func (n *Node) Rebuild(primary *Node) {
	n.t.Helper()
	n.attach(primary, n.Server.Rebuild)
}

// Rewind makes a server that has stopped in order a standby of primary, with pg_rewind. Both need
// [RewindSettings].
func (n *Node) Rewind(primary *Node) {
	n.t.Helper()
	n.attach(primary, n.Server.Rewind)
}

// RewindSettings are what [Node.Rewind] needs.
var RewindSettings = []string{"wal_log_hints=on", "full_page_writes=on"}

func (n *Node) attach(primary *Node, how func(pgtest.Upstream) error) {
	n.t.Helper()
	link, up := upstream(n.t, primary, n.Name)
	if err := how(up); err != nil {
		n.t.Fatalf("make %s a standby of %s: %v", n.Name, primary.Name, err)
	}
	if n.link != nil {
		n.link.Close()
	}
	n.link = link
	n.CatchUp(primary)
}

// CatchUp waits until this standby streams from primary and has applied all that primary has
// written so far.
func (n *Node) CatchUp(primary *Node) {
	n.t.Helper()
	upTo := Ask[string](n.t, primary.Watch, "SELECT pg_current_wal_flush_lsn()::text")
	Eventually(n.t, n.Name+" has what "+primary.Name+" has written", func() bool {
		var streams, has bool
		err1 := primary.Watch.QueryRow("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND application_name = $1)", n.Name).Scan(&streams)
		err2 := n.Watch.QueryRow("SELECT coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)", upTo).Scan(&has)
		return err1 == nil && err2 == nil && streams && has
	})
}

// Timeline returns the timeline of a primary.
func (n *Node) Timeline() (t int) {
	n.t.Helper()
	text := Ask[string](n.t, n.Watch, "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)")
	if _, err := fmt.Sscanf(text, "%x", &t); err != nil {
		n.t.Fatal(err)
	}
	return t
}
