//go:build unix

package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Upstream is what a standby streams from.
type Upstream struct {
	Primary *Server
	Addr    string // host:port that leads to Primary, such as a proxy's
	Name    string // of the standby, in pg_stat_replication and synchronous_standby_names
}

// NewStandby starts a hot standby with a copy of the primary's data and settings, without those of
// ALTER SYSTEM. The given settings override them. It is closed when the test ends. The primary must
// be a server of the test's own that runs, with a wal_keep_size that covers the copy. Without
// PostgreSQL's programs on this machine the test is skipped.
func (u Upstream) NewStandby(t testing.TB, settings ...string) *Server {
	t.Helper()
	from, ok := u.Primary.engine.(*cluster)
	if !ok {
		t.Skip("a standby needs a primary of PostgreSQL's programs on this machine")
	}
	s, err := u.standby(context.Background(), from, settings)
	if err != nil {
		t.Fatalf("pgtest: making a standby: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the standby %s at %s:\n%s", u.Name, s.Addr(), tail(s.Log(), 60))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (u Upstream) standby(ctx context.Context, from *cluster, lines []string) (_ *Server, err error) {
	settings, err := parseSettings(lines)
	if err != nil {
		return nil, err
	}
	c := &cluster{bindir: from.bindir, dir: temporaryName(), netns: from.netns, user: from.user}
	if c.dog, err = watch(clusterScript, c.dir); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err == nil {
		err = c.makeFolders()
	}
	if err == nil {
		err = c.copyFrom(ctx, u, port, settings)
	}
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	s := &Server{kind: kindBinaries, engine: c}
	socket, tcp := *u.Primary.socketURL, *u.Primary.url
	setParam(&socket, "host", c.path("socket"))
	setParam(&socket, "port", port)
	tcp.Host = net.JoinHostPort(tcp.Hostname(), port)
	s.socketURL, s.url = &socket, &tcp
	return launch(ctx, s)
}

// Promote makes a primary of a hot standby. It returns when the server accepts writes.
func (s *Server) Promote() error {
	return admin(context.Background(), s.local(), func(ctx context.Context, conn *sql.Conn) error {
		var done bool
		err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_promote(true, 25)").Scan(&done)
		if err == nil && !done {
			err = errors.New("pgtest: the standby was not promoted within 25 s")
		}
		return err
	})
}

// Follow makes a standby stream from another primary, and starts it if it is stopped. A stopped
// primary becomes a standby, which works if it has written nothing that u.Primary does not have:
// see [Server.Rebuild].
func (s *Server) Follow(u Upstream) error {
	return s.changeCluster(func(c *cluster) error {
		if s.running {
			standby, err := inRecovery(s.local())
			if err == nil && !standby {
				err = errors.New("pgtest: the server runs as a primary: stop it first")
			}
			if err == nil {
				err = c.follow(u)
			}
			if err != nil {
				return err
			}
			return execute(context.Background(), s.local(), "SELECT pg_catalog.pg_reload_conf()")
		}
		if err := c.follow(u); err != nil {
			return err
		}
		return s.start()
	})
}

// Rebuild makes a stopped server a standby with a fresh copy of the primary's data, on the address
// that it had, and starts it.
func (s *Server) Rebuild(u Upstream) error {
	return s.changeCluster(func(c *cluster) error {
		if s.running {
			return errors.New("pgtest: the server runs: stop it first")
		}
		if err := os.RemoveAll(c.path("data")); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), lifecycleTimeout)
		defer cancel()
		if err := c.copyFrom(ctx, u, s.url.Port(), nil); err != nil {
			return err
		}
		return s.start()
	})
}

// Rewind makes a stopped server a standby with pg_rewind: it undoes what the server wrote since the
// primary's timeline began, on the address that it had, and starts it. The server must have stopped
// in order, and both must have wal_log_hints and full_page_writes on. It needs the program pg_rewind:
// see [Server.CanRewind].
func (s *Server) Rewind(u Upstream) error {
	return s.changeCluster(func(c *cluster) error {
		if s.running {
			return errors.New("pgtest: the server runs: stop it first")
		}
		ctx, cancel := context.WithTimeout(context.Background(), lifecycleTimeout)
		defer cancel()
		// Until its first checkpoint a promoted server says that it is on the timeline before.
		if err := execute(ctx, u.Primary.local(), "CHECKPOINT"); err != nil {
			return err
		}
		if err := c.program("pg_rewind", "--target-pgdata="+c.path("data"), "--source-server="+u.Primary.SocketURL()); err != nil {
			return err
		}
		// The files of settings are the primary's now.
		if err := c.place(s.url.Port(), nil); err != nil {
			return err
		}
		if err := c.follow(u); err != nil {
			return err
		}
		return s.start()
	})
}

// CanRewind reports whether there is pg_rewind for [Server.Rewind]. The embedded server has none.
func (s *Server) CanRewind() bool {
	c, ok := s.engine.(*cluster)
	if !ok {
		return false
	}
	bindir, err := c.programs()
	return err == nil && executable(filepath.Join(bindir, "pg_rewind"))
}

func (s *Server) changeCluster(do func(c *cluster) error) error {
	return s.change(func() error {
		c, ok := s.engine.(*cluster)
		if !ok {
			return errors.New("pgtest: the data folder of this server is out of reach")
		}
		return do(c)
	})
}

func inRecovery(u *url.URL) (is bool, err error) {
	err = admin(context.Background(), u, func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_is_in_recovery()").Scan(&is)
	})
	return is, err
}

// copyFrom makes the data folder of a standby.
func (c *cluster) copyFrom(ctx context.Context, u Upstream, port string, settings []setting) error {
	from, ok := u.Primary.engine.(*cluster)
	if !ok {
		return errors.New("pgtest: the data folder of the primary is out of reach")
	}
	label, err := from.backUp(ctx, u.Primary, c)
	if err != nil {
		return err
	}
	if err := c.write("backup_label", label); err != nil {
		return err
	}
	if err := c.place(port, settings); err != nil {
		return err
	}
	return c.follow(u)
}

// place sets the server's own address in settings that were another server's.
func (c *cluster) place(port string, settings []setting) error {
	own := append([]setting{{"port", port}, {"unix_socket_directories", c.path("socket")}}, settings...)
	var conf string
	for _, s := range own {
		conf += fmt.Sprintln(s)
	}
	return appendTo(c.path("data/postgresql.conf"), conf)
}

// follow makes the server, at its next start or reload, a standby of u.
func (c *cluster) follow(u Upstream) error {
	host, port, err := net.SplitHostPort(u.Addr)
	if err != nil {
		return err
	}
	password, _ := u.Primary.url.User.Password()
	conninfo := fmt.Sprintf("host=%s port=%s user=%s password=%s application_name=%s sslmode=disable gssencmode=disable",
		host, port, u.Primary.url.User.Username(), password, u.Name)
	conf := fmt.Sprintf("%v\n%v\n%v\n", setting{"primary_conninfo", conninfo},
		setting{"recovery_target_timeline", "latest"}, setting{"wal_retrieve_retry_interval", "100ms"})
	if err := appendTo(c.path("data/postgresql.conf"), conf); err != nil {
		return err
	}
	return c.write("standby.signal", "")
}

// write writes a file of the data folder.
func (c *cluster) write(name, text string) error {
	path := c.path("data/" + name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return c.give(path)
}

// backUp copies the data folder of a running server s to to, and returns its backup_label.
func (c *cluster) backUp(ctx context.Context, s *Server, to *cluster) (label string, err error) {
	begin, end := "pg_backup_start('pgtest', true)", "pg_backup_stop(false)"
	if s.version < 150000 {
		begin, end = "pg_start_backup('pgtest', true, false)", "pg_stop_backup(false, false)"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = admin(ctx, s.local(), func(ctx context.Context, conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, "SELECT pg_catalog."+begin); err != nil {
			return err
		}
		if err := copyRunning(c.path("data"), to.path("data"), to.give); err != nil {
			return err
		}
		return conn.QueryRowContext(ctx, "SELECT labelfile FROM pg_catalog."+end).Scan(&label)
	})
	return label, err
}
