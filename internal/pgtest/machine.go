package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
)

// A machine is where pgtest searches for servers.
type machine struct {
	getenv  func(string) string
	folders []string // patterns of the usual folders of PostgreSQL's programs
}

var thisMachine = machine{getenv: os.Getenv, folders: usualFolders}

// The kinds of server, as PGADVISORY_TEST_SERVER and [Server.Kind] name them.
const (
	kindURL      = "url"
	kindBinaries = "binaries"
	kindDocker   = "docker"
)

// any returns the user's server if they named one, otherwise a throwaway one.
func (m machine) any(ctx context.Context) (*Server, error) {
	if m.usersServer() {
		return m.named(ctx)
	}
	return m.throwaway(ctx, Options{})
}

// usersServer reports whether tests share the user's server.
func (m machine) usersServer() bool {
	forced, err := m.forced()
	return err == nil && (forced == kindURL || forced == "" && m.names())
}

// throwaway starts a server for one user only.
func (m machine) throwaway(ctx context.Context, o Options) (*Server, error) {
	forced, err := m.forced()
	if err != nil {
		return nil, err
	}
	settings, err := parseSettings(o.Settings)
	if err != nil {
		return nil, err
	}

	var none noServerError
	if forced != kindDocker {
		wanted := cmp.Or(o.BinDir, m.getenv("PGADVISORY_TEST_BINDIR"))
		dir, err := m.bindir(wanted)
		if err == nil {
			return newCluster(ctx, dir, o.Netns, settings)
		}
		if wanted != "" {
			return nil, fmt.Errorf("pgtest: %w", err)
		}
		none.binaries = err
	}
	switch {
	case forced == kindBinaries:
	case o.places(settings) && forced == kindDocker:
		return nil, errExcluded
	case o.places(settings):
		none.docker = errors.New("not for a server with a place of its own")
	default:
		docker, err := m.docker(ctx)
		if err == nil {
			return newContainer(ctx, docker, m.image(), settings)
		}
		none.docker = err
	}
	return nil, &none
}

// forced returns the kind of server that the user wants, or "". It returns an error for variables
// with which no server can be used.
func (m machine) forced() (string, error) {
	for _, name := range []string{"PGSERVICE", "PGHOSTADDR"} {
		if m.getenv(name) != "" { // lib/pq would panic
			return "", fmt.Errorf("pgtest: lib/pq does not know %s: unset it, and name the server by DATABASE_URL", name)
		}
	}
	switch forced := m.getenv("PGADVISORY_TEST_SERVER"); forced {
	case "", kindURL, kindBinaries, kindDocker:
		return forced, nil
	default:
		return "", fmt.Errorf("pgtest: PGADVISORY_TEST_SERVER is %q; it may be url, binaries or docker", forced)
	}
}

// errExcluded means that the kind of server that the user wants does not support the options.
var errExcluded = errors.New("pgtest: a server with a place of its own is not for Docker, which PGADVISORY_TEST_SERVER wants")

// A noServerError says how to get a server, and why there is none. A nil cause was not tried.
type noServerError struct{ binaries, docker error }

func (e *noServerError) Error() string {
	s := `pgtest: no PostgreSQL server found. Any one of these will do:
  - a running server, named by DATABASE_URL=postgres://user:password@host:5432/postgres
  - PostgreSQL's programs on this machine: "make setup", or
      Debian, Ubuntu:  apt-get install postgresql
      Fedora, RHEL:    dnf install postgresql-server
      macOS:           brew install postgresql@18
  - a running Docker engine`
	if e.binaries != nil {
		s += "\nprograms: " + e.binaries.Error()
	}
	if e.docker != nil {
		s += "\nDocker: " + e.docker.Error()
	}
	return s
}
