package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/examples/internal/stage"
)

const rounds = 4 // in the last of which a worker is killed

// direct is the first process: it makes the workers try, reads the holders from the server during
// that, and prints what happens.
func direct(ctx context.Context, s *stage.Stage) error {
	if err := createLedger(ctx, s.DB); err != nil {
		return err
	}
	workers, err := s.Cast(ctx, "worker-1", "worker-2", "worker-3")
	if err != nil {
		return err
	}
	var version string
	if err := s.DB.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version); err != nil {
		return err
	}
	fmt.Printf("Three worker processes, one reconciliation: advisory lock %v, PostgreSQL %s\n", reconciliation, version)
	st := &story{Stage: s}
	for st.round = 1; st.round <= rounds; st.round++ {
		fmt.Printf("\nround %d: all try at the same moment\n", st.round)
		if err := st.playRound(ctx, workers); err != nil {
			return err
		}
	}
	if err := stage.End(st.alive(workers)...); err != nil {
		return err
	}
	return st.verdict(ctx)
}

// A story is the state of the program between the rounds.
type story struct {
	*stage.Stage
	round  int
	killed *stage.Process
	faults []error
}

func (s *story) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

// line prints the answer of a worker and what it does.
func (*story) line(p *stage.Process, said, then string, args ...any) {
	fmt.Printf("  %s  %-5s  %s\n", p.Name, said, fmt.Sprintf(then, args...))
}

// playRound plays a round.
func (s *story) playRound(ctx context.Context, workers []*stage.Process) error {
	winners, losers, err := s.try(ctx, workers)
	if err != nil {
		return err
	}
	if len(winners) != 1 {
		s.fault("round %d has %d winners", s.round, len(winners))
	}
	if s.round == rounds && len(winners) == 1 && len(losers) > 0 {
		return s.crash(ctx, winners[0], losers)
	}

	for _, p := range winners {
		if err := s.finish(ctx, p); err != nil {
			return err
		}
	}
	if len(losers) > 0 { // the lock is free: the next try succeeds
		return s.again(ctx, losers[s.round%len(losers)])
	}
	return nil
}

// try makes all workers try, and asks the server who holds the lock while the winner works.
func (s *story) try(ctx context.Context, workers []*stage.Process) (winners, losers []*stage.Process, err error) {
	if err := stage.Tell(fmt.Sprint("round ", s.round), workers...); err != nil {
		return nil, nil, err
	}
	for _, p := range workers {
		said, err := p.Hear(ctx)
		switch {
		case err != nil:
			return nil, nil, err
		case said == "working":
			winners = append(winners, p)
		case said == "false 0":
			losers = append(losers, p)
		default:
			return nil, nil, fmt.Errorf("%s said %q", p.Name, said)
		}
	}
	holders, err := holders(ctx, s.DB)
	if err != nil {
		return nil, nil, err
	}
	one := len(holders) == 1 && len(winners) == 1 && holders[0].Application == winners[0].Name
	if !one && !*withoutLock {
		s.fault("round %d: the server says that the holders are %v", s.round, holders)
	}
	for _, p := range workers {
		switch {
		case slices.Contains(winners, p):
			s.line(p, "true", "works")
		case one:
			s.line(p, "false", "steps aside: pid %d, %s, has the lock", holders[0].PID, holders[0].Application)
		default:
			s.line(p, "false", "steps aside")
		}
	}
	return winners, losers, nil
}

// finish lets a winner complete its work.
func (s *story) finish(ctx context.Context, p *stage.Process) error {
	if err := stage.Tell("go on", p); err != nil {
		return err
	}
	done, err := s.ran(ctx, p)
	if err != nil {
		return err
	}
	if *withoutLock {
		s.line(p, "", "has done %d accounts", done)
	} else {
		s.line(p, "", "has done %d accounts; the lock is released", done)
	}
	return nil
}

// again makes a worker try after the release.
func (s *story) again(ctx context.Context, p *stage.Process) error {
	if err := stage.Tell(fmt.Sprint("round ", s.round), p); err != nil {
		return err
	}
	done, err := s.ran(ctx, p)
	if err != nil {
		return err
	}
	if done != 0 {
		s.fault("round %d: %s did work again", s.round, p.Name)
	}
	s.line(p, "true", "tries again, and finds nothing left to do")
	return nil
}

// ran reads from a worker that it ran, and how many accounts it did.
func (s *story) ran(ctx context.Context, p *stage.Process) (done int, err error) {
	said, err := p.Hear(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(said, "true %d", &done); err != nil {
		return 0, fmt.Errorf("%s said %q", p.Name, said)
	}
	return done, nil
}

// crash kills the winner in the middle of its work, and makes another worker take over.
func (s *story) crash(ctx context.Context, winner *stage.Process, losers []*stage.Process) error {
	start := time.Now()
	s.killed = winner
	if err := winner.Kill(); err != nil {
		return err
	}
	for {
		hs, err := holders(ctx, s.DB)
		if err != nil {
			return err
		}
		if len(hs) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	s.line(winner, "", "is killed at work (kill -9); the lock is free after %d ms", time.Since(start).Milliseconds())

	next := losers[0]
	if err := stage.Tell(fmt.Sprint("round ", s.round), next); err != nil {
		return err
	}
	if err := next.Expect(ctx, "working"); err != nil {
		return err
	}
	s.line(next, "true", "tries again, and goes on with what is left")
	return s.finish(ctx, next)
}

func (s *story) alive(workers []*stage.Process) (alive []*stage.Process) {
	for _, p := range workers {
		if p != s.killed {
			alive = append(alive, p)
		}
	}
	return alive
}

// verdict checks the ledger on the server.
func (s *story) verdict(ctx context.Context) error {
	sum, err := sumUp(ctx, s.DB, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("\nledger: %d rounds of %d accounts, %d entries, %d doubled, %d missing, balances %d\n",
		rounds, accounts, sum.Entries, sum.Doubled, sum.Missing, sum.Balances)
	if sum.Doubled > 0 {
		s.fault("double work: %d of %d times", sum.Doubled, rounds*accounts)
	}
	if sum.Missing > 0 {
		s.fault("work left undone: %d times", sum.Missing)
	}
	if want := int64(10 * rounds * accounts); sum.Balances != want {
		s.fault("the balances are %d, not %d", sum.Balances, want)
	}
	if len(s.faults) > 0 {
		return errors.Join(s.faults...)
	}
	fmt.Println("every round had one winner, and all work was done once")
	return nil
}
