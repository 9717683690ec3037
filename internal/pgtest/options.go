package pgtest

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Options describe a throwaway server. The zero Options are a server with the
// defaults that the package documentation names.
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

	// BinDir is the folder with initdb and postgres to use, in place of
	// those that would be found.
	BinDir string
}

// NewServer starts a throwaway server, which is closed when the test ends; if
// the test has failed, the end of the server's log is told. It never is a server
// that the user named: where they named one and no other is to be had, the test
// is skipped.
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

// Start finds or starts a server, in the order that the package documentation
// gives. It is for programs; tests have [URL] and [NewServer]. With settings it
// is always a throwaway server. The caller closes it.
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

// places reports whether the options say where the server is to run or to listen.
func (o Options) places(settings []setting) bool {
	return o.Netns != "" || o.BinDir != "" || last(settings, "listen_addresses", "no") != "no" || last(settings, "port", "") != ""
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
