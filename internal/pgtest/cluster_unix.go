//go:build unix

package pgtest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lib/pq"
)

// A cluster is a server of the PostgreSQL programs on this machine, with its data in a temporary
// folder.
type cluster struct {
	bindir string
	dir    string // data, socket, log
	netns  string
	user   *syscall.Credential // nil: the user that runs this program
	dog    *watchdog
	server *postmaster // nil while stopped
}

//go:embed cluster.sh
var clusterScript string

func newCluster(ctx context.Context, bindir, netns string, settings []setting) (_ *Server, err error) {
	c := &cluster{bindir: bindir, netns: netns}
	if c.user, err = unprivileged(); err != nil {
		return nil, err
	}
	c.dir = temporaryName()
	if c.dog, err = watch(clusterScript, c.dir); err != nil {
		return nil, err
	}

	password := random(16)
	port, err := c.make(ctx, settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: making a PostgreSQL cluster: %w", err), c.remove())
	}

	s := &Server{kind: kindBinaries, bindir: bindir, engine: c}
	s.socketURL = &url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres"}
	s.socketURL.RawQuery = url.Values{"host": {c.path("socket")}, "port": {port}, "sslmode": {"disable"}}.Encode()
	s.url = s.socketURL
	if host := firstHost(last(settings, "listen_addresses", "127.0.0.1")); host != "" {
		s.url = &url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Path: "/postgres"}
		s.url.Host = net.JoinHostPort(host, port)
		s.url.RawQuery = "sslmode=disable"
	}
	if s, err = launch(ctx, s); err != nil {
		return nil, err
	}
	if err := s.setPassword(ctx, password); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: setting the password of a new PostgreSQL cluster: %w", err), s.Close())
	}
	return s, nil
}

// setPassword gives the superuser a password, over the socket. Whatever the settings of
// the server, it stays out of the log.
func (s *Server) setPassword(ctx context.Context, password string) error {
	u := *s.socketURL
	setParam(&u, "options", "-c log_statement=none -c log_min_duration_statement=-1 -c log_min_error_statement=panic -c default_transaction_read_only=off")
	return execute(ctx, &u, "ALTER ROLE postgres PASSWORD "+pq.QuoteLiteral(password))
}

// firstHost returns the host to reach a server by that listens on addresses.
func firstHost(addresses string) string {
	host, _, _ := strings.Cut(addresses, ",")
	switch host = strings.TrimSpace(host); host {
	case "*", "0.0.0.0":
		return "127.0.0.1"
	case "::":
		return "::1"
	}
	return host
}

// temporaryName returns the name of a folder that does not exist yet. It is
// short, for the path of a Unix socket has to be less than about 100 bytes.
func temporaryName() string {
	base := os.TempDir()
	if len(base) > 50 {
		base = "/tmp"
	}
	return filepath.Join(base, "pgadvisory-"+random(6))
}

// make makes the cluster and returns the port for its server.
func (c *cluster) make(ctx context.Context, settings []setting) (port string, err error) {
	if err := c.makeFolders(); err != nil {
		return "", err
	}
	if err := c.initdb(ctx); err != nil {
		return "", err
	}
	if port = last(settings, "port", ""); port == "" {
		if port, err = freePort(); err != nil { // late, so that nobody else takes it
			return "", err
		}
	}
	return port, c.configure(port, settings)
}

// makeFolders makes the cluster's folder and the socket's, which its user alone
// may enter.
func (c *cluster) makeFolders() error {
	for _, dir := range []string{c.dir, c.path("socket")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := c.give(dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

// initdb makes the data folder, by a copy of what initdb has made before if there is one.
// Its superuser is postgres: trusted on the socket, whose folder is private, and with a
// password over TCP, which a new server sets.
func (c *cluster) initdb(ctx context.Context) error {
	args, key, err := c.initdbArgs(ctx)
	if err != nil {
		return err
	}
	template := templateOf(key)
	if template.copyTo(c.path("data"), c.give) == nil {
		return nil
	}
	cmd := c.command(ctx, "initdb", append(args, "--pgdata="+c.path("data"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
	}
	template.keep(c.path("data")) // without it the next server takes as long
	return nil
}

// initdbArgs returns the arguments of initdb, without the folder, and a text that tells
// apart what different programs and arguments make.
func (c *cluster) initdbArgs(ctx context.Context) (args []string, key string, err error) {
	program := filepath.Join(c.bindir, "postgres")
	version, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return nil, "", fmt.Errorf("%s --version: %w", program, err)
	}
	major, err := strconv.Atoi(versionNumber.FindString(string(version)))
	if err != nil {
		return nil, "", err
	}
	args = append(slices.Clone(initdbArgs), "--username=postgres", "--auth-local=trust")
	// Passwords that are cheap to check, since tests connect often. With fewer
	// than 1000 iterations lib/pq refuses to connect.
	if major >= 16 {
		args = append(args, "--auth-host=scram-sha-256", "--set", "scram_iterations=1000")
	} else {
		args = append(args, "--auth-host=md5")
	}

	parts := append([]string{string(version)}, args...)
	for _, name := range []string{"initdb", "postgres"} {
		path, err := filepath.EvalSymlinks(filepath.Join(c.bindir, name))
		if err != nil {
			return nil, "", err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, "", err
		}
		parts = append(parts, path, fmt.Sprint(info.Size()), info.ModTime().UTC().String())
	}
	return args, strings.Join(parts, "\n"), nil
}

var versionNumber = regexp.MustCompile(`\d+`)

func (c *cluster) configure(port string, settings []setting) error {
	place := []setting{
		{"port", port},
		{"listen_addresses", "127.0.0.1"},
		{"unix_socket_directories", c.path("socket")},
		{"unix_socket_permissions", "0700"},
	}
	var conf strings.Builder
	for _, s := range slices.Concat(place, speed, logging, settings) {
		fmt.Fprintln(&conf, s)
	}
	if err := appendTo(c.path("data/postgresql.conf"), conf.String()); err != nil {
		return err
	}

	// Wherever a caller makes the server listen, the password opens it. The
	// method md5 stands for SCRAM too, where the password is kept so.
	return appendTo(c.path("data/pg_hba.conf"), "host all all all md5\nhost replication all all md5\n")
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (c *cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lifecycleTimeout)
	defer cancel()
	log, err := os.OpenFile(c.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := c.command(context.Background(), "postgres", "-D", c.path("data"))
	cmd.Stdout, cmd.Stderr = log, log
	if c.server, err = startPostmaster(cmd); err != nil {
		return err
	}
	if err := c.dog.send(c.server.pid()); err != nil {
		return errors.Join(err, c.crash())
	}

	for !c.ready() {
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("not ready: %w", ctx.Err()), c.crash())
		}
		if c.server.gone(10 * time.Millisecond) {
			text, _ := c.log(true)
			return errors.Join(fmt.Errorf("%s has ended:\n%s", cmd.Path, tail(text, 20)), c.ended())
		}
	}
	return nil
}

// ready reports whether the server accepts connections, as it says in its pid
// file. Trying would leave lines in its log.
func (c *cluster) ready() bool {
	text, err := os.ReadFile(c.path("data/postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(c.server.pid()) && strings.TrimSpace(lines[7]) == "ready"
}

func (c *cluster) stop(mode string) error {
	sig := map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}[mode]
	if err := c.server.signal(sig); err != nil {
		return err
	}
	if !c.server.gone(lifecycleTimeout) {
		return errors.Join(fmt.Errorf("pgtest: PostgreSQL has not stopped within %v", lifecycleTimeout), c.crash())
	}
	return c.ended()
}

func (c *cluster) crash() error {
	if err := c.server.kill(); err != nil {
		return err
	}
	return c.ended()
}

func (c *cluster) ended() error {
	c.server.reap()
	c.server = nil
	return c.dog.send(0)
}

func (c *cluster) pause() error { return c.server.pause() }

func (c *cluster) resume() error { return c.server.resume() }

func (c *cluster) log(bool) (string, error) {
	text, err := os.ReadFile(c.path("log"))
	return string(text), err
}

// remove removes the cluster, and what a crash has left of it in the system.
func (c *cluster) remove() error {
	if c.server != nil {
		if err := c.crash(); err != nil {
			return err
		}
	}
	return c.dog.clean()
}

// command returns a command that runs one of PostgreSQL's programs as the
// cluster's user, in the cluster's network namespace. A signal to the
// process group of this program, such as Ctrl-C, does not reach it.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bindir, name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.user}
	if c.netns != "" {
		enter := []string{"--net=/run/netns/" + c.netns}
		if c.user != nil {
			enter = append(enter, fmt.Sprintf("--setuid=%d", c.user.Uid), fmt.Sprintf("--setgid=%d", c.user.Gid))
		}
		cmd = exec.CommandContext(ctx, "nsenter", append(append(enter, "--", cmd.Path), args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nsenter itself has to be root
	}
	cmd.Dir = c.dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	return cmd
}

// give makes the cluster's user the owner of a file of this program's.
func (c *cluster) give(file string) error {
	if c.user == nil {
		return nil
	}
	return os.Chown(file, int(c.user.Uid), int(c.user.Gid))
}
