// Package pgbouncer runs a PgBouncer between tests and a PostgreSQL server. It listens on
// 127.0.0.1, runs as an unprivileged user, and has its configuration in a temporary folder. It ends
// with the test, or with the test's process.
package pgbouncer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Pool modes.
const (
	Session     = "session"
	Transaction = "transaction"
	Statement   = "statement"
)

// Options describe a PgBouncer.
type Options struct {
	Mode       string // one of the pool modes above
	PoolSize   int    // how many sessions of the server it may use; 0: 20
	RoundRobin bool   // it uses the sessions in turn, not the last used one
	Settings   []string
}

// New starts a PgBouncer in front of the database of serverURL, and returns the URL of the same
// database through it. If the program is not installed, it skips the test.
func New(t testing.TB, serverURL string, o Options) string {
	t.Helper()
	program, err := findProgram()
	if err != nil {
		t.Skip(err)
	}
	for tries := 1; ; tries++ {
		u, err := start(t, program, serverURL, o)
		if err == nil {
			return u
		}
		if tries == 3 { // until then, another process may have taken its port
			t.Fatal(err)
		}
	}
}

func findProgram() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("PgBouncer is not on this machine: apt-get install pgbouncer, dnf install pgbouncer or brew install pgbouncer")
}

// script kills the program at the end of its standard input, which comes with the end of the test's
// process.
const script = `trap '' INT
"$@" </dev/null &
cat >/dev/null
kill -KILL $!`

func start(t testing.TB, program, serverURL string, o Options) (string, error) {
	dir := t.TempDir()
	port, err := freePort()
	if err != nil {
		return "", err
	}
	config, database, err := configuration(serverURL, port, o)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", err
	}
	args := []string{"-c", script, "pgadvisory-pgbouncer", program, "-q"}
	if os.Geteuid() == 0 {
		name, err := unprivileged()
		if err != nil {
			return "", err
		}
		args = append(args, "-u", name) // it reads its configuration before it changes its user
	}
	cmd := exec.Command("/bin/sh", append(args, file)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	stop, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	u := (&url.URL{Scheme: "postgres", User: url.User("anyone"), Host: net.JoinHostPort("127.0.0.1", port), Path: "/" + database, RawQuery: "sslmode=disable"}).String()
	if err := accepts(net.JoinHostPort("127.0.0.1", port)); err != nil {
		end(stop, cmd)
		return "", fmt.Errorf("PgBouncer does not start: %w\n%s", err, log.String())
	}
	t.Cleanup(func() {
		end(stop, cmd)
		if t.Failed() {
			t.Logf("log of PgBouncer:\n%s", log.String())
		}
	})
	return u, nil
}

func end(stop io.Closer, cmd *exec.Cmd) {
	stop.Close()
	cmd.Wait() // always fails, because the program was killed
}

// configuration maps all clients to the user of serverURL, whatever name they give.
func configuration(serverURL, port string, o Options) (config, database string, err error) {
	u, err := url.Parse(serverURL)
	if err != nil {
		return "", "", err
	}
	database = strings.TrimPrefix(u.Path, "/")
	host, serverPort := u.Hostname(), u.Port()
	if host == "" {
		host, serverPort = u.Query().Get("host"), u.Query().Get("port")
	}
	if serverPort == "" {
		serverPort = "5432"
	}
	password, _ := u.User.Password()
	var b strings.Builder
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	fmt.Fprintf(&b, "[databases]\n%s = host=%s port=%s dbname=%s user=%s", database, host, serverPort, database, quote(u.User.Username()))
	if password != "" {
		fmt.Fprintf(&b, " password=%s", quote(password))
	}
	size, inTurn := o.PoolSize, 0
	if size == 0 {
		size = 20
	}
	if o.RoundRobin {
		inTurn = 1
	}
	settings := []string{
		"listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =",
		"auth_type = any", "server_tls_sslmode = prefer",
		"ignore_startup_parameters = extra_float_digits,options",
		"pool_mode = " + o.Mode, fmt.Sprintf("default_pool_size = %d", size), fmt.Sprintf("server_round_robin = %d", inTurn),
		"max_client_conn = 1000",
	}
	fmt.Fprintf(&b, "\n[pgbouncer]\n%s\n", strings.Join(slices.Concat(settings, o.Settings), "\n"))
	return b.String(), database, nil
}

func unprivileged() (string, error) {
	for _, name := range []string{"postgres", "nobody"} {
		if _, err := user.Lookup(name); err == nil {
			return name, nil
		}
	}
	return "", errors.New("PgBouncer does not run as root, and there is neither a user postgres nor nobody")
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// accepts waits until a process listens at addr.
func accepts(addr string) (err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
	}
	return err
}
