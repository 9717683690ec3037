package exclusion_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

// An arena is a server, and processes that compete for locks there.
type arena struct {
	*testing.T
	server *pgtest.Server
	pair   *netns.Pair   // nil: there is no network to cut, and proxies take its place
	watch  *harness.Pool // past all faults of the network
	lag    *harness.Lag
	rivals []*rivals

	mu     sync.Mutex
	faults []*strike
	books  []string
	// stops keeps apart the stopping of a server process and of all: each ends by SIGCONT.
	stops sync.RWMutex
}

// A strike is a fault. Holders have to be told within due after it was done.
type strike struct {
	history.Fault
	done history.Time
	due  time.Duration // 0: it is not to be noticed
}

// rivals are processes of which there is one at a time.
type rivals struct {
	*arena
	order   harness.Order
	link    link
	busy    sync.Mutex // a fault is under way
	process int
	peer    *harness.Peer
}

// A link can be cut, so that what is sent is lost, or waits.
type link interface {
	Cut(netns.Direction)
	Heal(netns.Direction)
}

type frozen struct{ *proxy.Proxy }

func (f frozen) Cut(d netns.Direction) { f.Freeze(proxy.Direction(d)) }
func (f frozen) Heal(netns.Direction)  { f.Thaw() }

func newArena(t *testing.T) *arena {
	a := &arena{T: t, lag: harness.WatchLag(t)}
	settings := []string{"max_connections=300"}
	pair, err := netns.New(t)
	if err == nil {
		a.pair = pair
		a.server = pgtest.Options{Netns: pair.ServerNS, Settings: append(settings, "listen_addresses="+pair.ServerIP)}.NewServer(t)
		s := &harness.Site{T: t, Pair: pair, Server: a.server}
		s.Command(pair.ServerNS, "ip", "route", "add", "10.231.1.0/24", "via", pair.ClientIP)
	} else {
		t.Logf("links are frozen, not cut: %v", err)
		a.server = pgtest.NewServer(t, settings...)
	}
	url := a.server.URL()
	if a.pair != nil {
		url = a.server.SocketURL()
	}
	a.watch = harness.Drivers[0].Open(t, url)
	return a
}

// newRivals starts the first of the rivals: half of them through each driver, half of them
// with tokens.
func (a *arena) newRivals(n int) *rivals {
	r := &rivals{arena: a, order: harness.Order{Job: "rival", Driver: harness.Drivers[n%2].Sql, URL: a.server.URL()}}
	ip := ""
	if a.pair != nil {
		m := (&harness.Site{T: a.T, Pair: a.pair, Server: a.server}).Machine(n + 1)
		r.link, r.order.Netns, ip = m, a.pair.ClientNS, m.Ip
	} else {
		p := proxy.New(a, a.server.Addr())
		a.Cleanup(p.Thaw)
		r.link, r.order.URL = frozen{p}, p.URL(r.order.URL)
	}
	tokens := "tokens"
	if n/2%2 == 1 {
		tokens = "no tokens"
	}
	r.order.Args = []string{"", "", ip, tokens}
	r.Start()
	return r
}

// Start starts a process.
func (r *rivals) Start() {
	a := r.arena
	a.mu.Lock()
	r.process = len(a.books) + 1
	book := filepath.Join(a.TempDir(), fmt.Sprintf("book %d", r.process))
	a.books = append(a.books, book)
	a.mu.Unlock()
	o := r.order
	o.URL = harness.WithParameter(a, o.URL, "application_name", r.name())
	o.Args = append([]string{fmt.Sprint(r.process), book}, o.Args[2:]...)
	r.peer = o.Start(a)
	r.peer.Says("contends", harness.Patience)
}

// name is how the server knows the process.
func (r *rivals) name() string { return fmt.Sprintf("rival %d", r.process) }

// strike does all kinds of faults until ctx ends.
func (a *arena) strike(ctx context.Context) {
	var wg sync.WaitGroup
	again := func(every time.Duration, do func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(every/2 + rand.N(every)):
					do(i)
				}
			}
		})
	}
	again(250*time.Millisecond, func(int) { a.some((*rivals).endSession) })
	again(3*time.Second, func(int) { a.some((*rivals).Kill) })
	again(3*time.Second, func(int) { a.some((*rivals).reset) })
	again(3*time.Second, func(int) { a.some((*rivals).stopForAMoment) })
	again(3*time.Second, func(i int) { a.some(func(r *rivals) { r.stopSession(i%2 == 0) }) })
	dirs := []netns.Direction{netns.Both, netns.Up, netns.Down}
	again(time.Second, func(i int) { a.some(func(r *rivals) { r.Cut(dirs[i%len(dirs)], i%4 != 3) }) })
	whole := a.ofTheServer()
	rand.Shuffle(len(whole), func(i, j int) { whole[i], whole[j] = whole[j], whole[i] })
	again(5*time.Second, func(i int) { whole[i%len(whole)]() })
	wg.Wait()
}

// some does something to one of the rivals to which nothing else is done.
func (a *arena) some(do func(*rivals)) {
	for _, i := range rand.Perm(len(a.rivals)) {
		if r := a.rivals[i]; r.busy.TryLock() {
			defer r.busy.Unlock()
			do(r)
			return
		}
	}
}

// Begin takes note of a fault that is about to begin.
func (a *arena) Begin(f history.Fault) *strike {
	s := &strike{Fault: f}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, s)
	s.Sent = history.Now()
	return s
}

func (s *strike) isDone(due time.Duration) { s.done, s.due = history.Now(), due }
func (s *strike) isOver()                  { s.Over = history.Now() }

// session returns the pid of one of the process's sessions, mostly one that holds a lock;
// 0 where none is to be had now.
func (r *rivals) session() (pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := r.watch.QueryRowContext(ctx, `SELECT pid FROM pg_stat_activity a WHERE application_name = $1
		ORDER BY (SELECT count(*) > 0 FROM pg_locks l WHERE l.pid = a.pid AND locktype = 'advisory' AND granted) AND random() < 0.7 DESC, random() LIMIT 1`,
		r.name()).Scan(&pid)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		time.Sleep(100 * time.Millisecond) // there is no server now
	}
	return pid
}

// endSession terminates a session, or cancels what it is at.
func (r *rivals) endSession() {
	pid := r.session()
	if pid == 0 {
		return
	}
	if rand.N(3) == 0 {
		s := r.Begin(history.Fault{Kind: "cancel", Process: r.process, Session: pid})
		r.watch.Exec("SELECT pg_cancel_backend($1)", pid)
		s.isOver()
		return
	}
	s := r.Begin(history.Fault{Kind: "terminate", Process: r.process, Session: pid, Ends: true})
	if _, err := r.watch.Exec("SELECT pg_terminate_backend($1)", pid); err != nil {
		return
	}
	for range 1000 {
		var there bool
		if err := r.watch.QueryRow("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1", pid).Scan(&there); err != nil {
			return
		} else if !there {
			s.isDone(harness.Heartbeat)
			s.isOver()
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Kill kills the process. Another takes its place.
func (r *rivals) Kill() {
	r.Begin(history.Fault{Kind: "kill", Process: r.process, Ends: true})
	r.peer.Kill()
	if state := r.peer.Cmd.ProcessState; state.Exited() {
		r.Errorf("process %d had ended by itself: %v", r.process, state)
	}
	r.Start()
}

// reset resets the process's connections.
func (r *rivals) reset() {
	s := r.Begin(history.Fault{Kind: "reset", Process: r.process, Ends: true})
	fmt.Fprintln(r.peer.In, "reset")
	r.peer.Says("has reset", harness.Patience)
	s.isDone(harness.Heartbeat)
	s.isOver()
}

// stopForAMoment stops the process for less than the stop margin.
func (r *rivals) stopForAMoment() {
	s := r.Begin(history.Fault{Kind: "stop the process for a moment", Process: r.process})
	r.peer.Cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(rand.N(400 * time.Millisecond))
	r.peer.Cmd.Process.Signal(syscall.SIGCONT)
	s.isOver()
}

// lasting is how long a fault lasts that takes all of the locks with it. It is due before
// that.
const lasting = harness.QuickFailover + time.Second

// forAWhile is how long a fault lasts, which is to be noticed or not.
func forAWhile(notice bool) time.Duration {
	if notice {
		return lasting
	}
	return rand.N(700 * time.Millisecond)
}

func (s *strike) lasts(notice bool) {
	s.Kind += ", briefly"
	if notice {
		s.Kind = s.Kind[:len(s.Kind)-len(", briefly")]
		s.isDone(harness.QuickDeadline)
	}
	time.Sleep(forAWhile(notice))
}

// Cut cuts the link.
func (r *rivals) Cut(dir netns.Direction, notice bool) {
	s := r.Begin(history.Fault{Kind: "cut " + dir.String(), Process: r.process})
	r.link.Cut(dir)
	s.lasts(notice)
	r.link.Heal(dir)
	s.isOver()
}

// stopSession stops a server process.
func (r *rivals) stopSession(notice bool) {
	pid := r.session()
	if pid == 0 || r.server.Kind() != "binaries" {
		return
	}
	r.stops.RLock()
	defer r.stops.RUnlock()
	s := r.Begin(history.Fault{Kind: "stop a server process", Process: r.process, Session: pid})
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		s.lasts(notice)
		syscall.Kill(pid, syscall.SIGCONT)
	}
	s.isOver()
}

// ofTheServer are the faults of all of the server.
func (a *arena) ofTheServer() []func() {
	fatal := func(kind string, stop func() error) func() {
		return func() {
			s := a.Begin(history.Fault{Kind: kind, Ends: true})
			if err := stop(); err != nil {
				a.Error(err)
			}
			s.isDone(harness.Heartbeat)
			s.isOver()
			if err := a.server.Start(); err != nil {
				a.Error(err)
			}
			a.watch.Reconnect()
		}
	}
	pause := func(notice bool) func() {
		return func() {
			a.stops.Lock()
			defer a.stops.Unlock()
			s := a.Begin(history.Fault{Kind: "pause"})
			if err := a.server.Pause(); err != nil {
				a.Error(err)
			}
			s.lasts(notice)
			if err := a.server.Resume(); err != nil {
				a.Error(err)
			}
			s.isOver()
		}
	}
	return []func(){
		fatal("restart", func() error { return a.server.Stop("fast") }),
		fatal("immediate stop", func() error { return a.server.Stop("immediate") }),
		fatal("crash", a.server.Crash),
		pause(true), pause(false),
	}
}
