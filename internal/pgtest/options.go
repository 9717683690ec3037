package pgtest

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Options describe a temporary server. The zero Options have the defaults that the package
// documentation lists.
type Options struct {
	// Settings are lines for postgresql.conf, such as "max_connections=20". A
	// later one overrides an earlier one, and all override the defaults of this
	// package. The URL of a server with "listen_addresses=10.0.0.2" points there;
	// that setting and "port" need PostgreSQL's programs on this machine, as do
	// the fields below: where the user wants Docker, NewServer skips the test.
	Settings []string

	// Netns is the name of a network namespace ("ip netns add NAME") to run the
	// server in, which needs root. The Unix socket is reachable from every
	// namespace.
	Netns string

	// BinDir is the folder with initdb and postgres to use. By default NewServer searches for one.
	BinDir string
}

// NewServer starts a temporary server, which is closed when the test ends. If the test has failed,
// the end of the server's log is printed. It never returns a server that the user named: if the
// user named one and there is no other, the test is skipped.
func NewServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return Options{Settings: settings}.NewServer(t)
}

// NewServer is [NewServer] with all options.
func (o Options) NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := thisMachine.throwaway(context.Background(), o)
	if err != nil {
		none, _ := errors.AsType[*noServerError](err)
		if none != nil && thisMachine.usersServer() || err == errExcluded {
			t.Skipf("needs a server of its own: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the server at %s:\n%s", s.Addr(), tail(s.Log(), 60))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start finds or starts a server, in the order of the package documentation. It is for programs;
// tests use [URL] and [NewServer]. With settings it always starts a temporary server. The caller
// closes it.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	return Options{Settings: settings}.Start(ctx)
}

// Start is [Start] with all options.
func (o Options) Start(ctx context.Context) (*Server, error) {
	if len(o.Settings) == 0 && o.Netns == "" && o.BinDir == "" {
		return thisMachine.any(ctx)
	}
	return thisMachine.throwaway(ctx, o)
}

// places reports whether the options determine where the server runs or listens.
func (o Options) places(settings []setting) bool {
	return o.Netns != "" || o.BinDir != "" || last(settings, "listen_addresses", "no") != "no" || last(settings, "port", "") != ""
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
