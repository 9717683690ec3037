package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
)

// Main runs the tests of a package, closes every server and exits. It is for
// TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// On SIGINT and SIGTERM it closes every server before it exits. A package without it leaves
// no throwaway server behind either, but may leave databases on a server that
// the user named.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		signal.Stop(interrupted) // a second one ends the program at once
		Shutdown()
		os.Exit(1)
	}()

	code := m.Run()
	if err := Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shutdown closes every server of this process. Main does so by itself.
func Shutdown() error {
	var errs []error
	for _, s := range open.all() {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// open holds the servers that are not closed yet.
var open registry

type registry struct {
	mu      sync.Mutex
	servers map[*Server]struct{}
}

func (r *registry) add(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == nil {
		r.servers = make(map[*Server]struct{})
	}
	r.servers[s] = struct{}{}
}

func (r *registry) remove(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.servers, s)
}

func (r *registry) all() []*Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Server, 0, len(r.servers))
	for s := range r.servers {
		all = append(all, s)
	}
	return all
}
