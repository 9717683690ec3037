package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// A Server is a PostgreSQL server. Several goroutines may call its methods at once. Stop, Crash,
// Start, Restart, Pause and Resume fail on a server that the user named. While a server runs, this
// process keeps no goroutine and no connection for it.
type Server struct {
	kind      string
	bindir    string // of kindBinaries
	version   int
	url       *url.URL
	socketURL *url.URL // nil where there is none
	engine    engine   // nil for a server that the user named

	lifecycle sync.Mutex // one change of state at a time
	mu        sync.Mutex
	running   bool // neither stopped nor crashed; paused or not
	paused    bool
	closed    bool
	databases map[string]struct{} // of ours, on the server
}

// An engine runs a temporary server.
type engine interface {
	start(ctx context.Context) error // returns when connections are accepted
	stop(mode string) error          // returns when no process is left, as does crash
	crash() error
	pause() error
	resume() error
	log(answers bool) (string, error)
	remove() error
}

// lifecycleTimeout limits every change of a server's state.
const lifecycleTimeout = time.Minute

// launch starts a server for the first time.
func launch(ctx context.Context, s *Server) (*Server, error) {
	err := s.engine.start(ctx)
	if err == nil {
		s.version, err = serverVersion(ctx, s.local())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: starting PostgreSQL: %w", err), s.engine.remove())
	}
	s.running = true
	open.add(s)
	return s, nil
}

// URL returns the URL of the server's maintenance database, over TCP if the server listens there.
// The user is the superuser on a temporary server, and the user's own on a server that the user
// named.
func (s *Server) URL() string { return s.url.String() }

// SocketURL returns the URL of the maintenance database over the Unix socket, or "" if none is known.
func (s *Server) SocketURL() string {
	if s.socketURL == nil {
		return ""
	}
	return s.socketURL.String()
}

// Addr returns host:port of the server's TCP address, or "" if it has none.
func (s *Server) Addr() string { return s.url.Host }

// Version returns server_version_num: 150018 for 15.18.
func (s *Server) Version() int { return s.version }

// Kind returns "url", "binaries" or "docker". An embedded server is one of binaries.
func (s *Server) Kind() string { return s.kind }

// BinDir returns the folder with the server's initdb and postgres, or "" if they are not on this
// machine or not known.
func (s *Server) BinDir() string { return s.bindir }

// Log returns the whole log of the server, over all its starts. A line begins with the time and
// [pid] and, if a session wrote it, database/application. The log has warnings and worse. Log
// returns "" for a server that the user named, and after Close.
func (s *Server) Log() string {
	if s.engine == nil {
		return ""
	}
	s.mu.Lock()
	answers := s.running && !s.paused
	s.mu.Unlock()
	text, err := s.engine.log(answers)
	if err != nil {
		return ""
	}
	return text
}

// Stop stops the server and returns when it has ended: "fast" ends sessions and shuts down in
// order, "immediate" kills all processes, so that the next start recovers. Stop resumes a paused
// server first.
func (s *Server) Stop(mode string) error {
	if mode != "fast" && mode != "immediate" {
		return fmt.Errorf("pgtest: stop mode %q is neither fast nor immediate", mode)
	}
	return s.change(func() error { return s.stop(func() error { return s.engine.stop(mode) }) })
}

// Crash kills all processes of the server with SIGKILL.
func (s *Server) Crash() error {
	return s.change(func() error { return s.stop(s.engine.crash) })
}

// Start starts a stopped or crashed server again, on the same address and data.
// It returns when connections are accepted.
func (s *Server) Start() error { return s.change(s.start) }

// Restart is Stop("fast") and Start.
func (s *Server) Restart() error {
	return s.change(func() error {
		if err := s.stop(func() error { return s.engine.stop("fast") }); err != nil {
			return err
		}
		return s.start()
	})
}

// Pause stops all processes of the server with SIGSTOP, as if its machine hung.
func (s *Server) Pause() error {
	return s.change(func() error {
		if !s.running {
			return errNotRunning
		}
		s.set(s.running, true)
		return s.engine.pause()
	})
}

// Resume ends a Pause.
func (s *Server) Resume() error {
	return s.change(func() error {
		if !s.paused {
			return nil
		}
		s.set(s.running, false)
		return s.engine.resume()
	})
}

// Close stops a temporary server and removes it. On a server that the user named, it drops the
// remaining databases of pgtest. A second Close does nothing.
func (s *Server) Close() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer open.remove(s) // at the end, so that a concurrent Shutdown waits for it

	if s.engine == nil {
		var errs []error
		for _, name := range s.left() {
			errs = append(errs, s.drop(context.Background(), name))
		}
		return errors.Join(errs...)
	}
	var err error
	if s.running {
		err = s.stop(func() error { return s.engine.stop("immediate") })
	}
	return errors.Join(err, s.engine.remove())
}

var errNotRunning = errors.New("pgtest: the server does not run")

// change runs a change of the state of a throwaway server that is not closed.
func (s *Server) change(do func() error) error {
	if s.engine == nil {
		return errors.New("pgtest: the server is the user's: take one of NewServer to stop, pause or start it")
	}
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return errors.New("pgtest: the server is closed")
	}
	return do()
}

func (s *Server) stop(how func() error) error {
	if !s.running {
		return errNotRunning
	}
	paused := s.paused
	s.set(false, false)
	if paused {
		if err := s.engine.resume(); err != nil {
			return err
		}
	}
	return how()
}

func (s *Server) start() error {
	if s.running {
		return errors.New("pgtest: the server runs already")
	}
	if err := s.engine.start(context.Background()); err != nil {
		return fmt.Errorf("pgtest: starting PostgreSQL again: %w", err)
	}
	s.set(true, false)
	return nil
}

func (s *Server) set(running, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.paused = running, paused
}

// left returns the names of the databases that have not been dropped.
func (s *Server) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.databases))
	for name := range s.databases {
		names = append(names, name)
	}
	return names
}
