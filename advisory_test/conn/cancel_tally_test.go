package conn_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// A tally is what came of the calls.
type tally struct {
	form    form
	calls   int
	granted int // took the lock
	late    int // of these: ctx had ended by then
	refused int // did not, and said so
	undone  int // of these: had been granted the lock, as far as can be seen
	gaveUp  int // of these: gave the connection up, for there was no answer within the grace
	left    int // locks left on a pooled connection

	visible bool // messages are not encrypted

	least, most, sum time.Duration // of the latencies that were assumed
}

func (s *tally) add(a *attempt, err error, left int, latency time.Duration) {
	s.calls++
	s.left += left
	if a.got.IsZero() {
		s.refused++
		s.undone += a.undone
	} else {
		s.granted++
		if a.late {
			s.late++
		}
	}
	if errors.Is(err, bound.ErrNoAnswer) {
		s.gaveUp++
	}
	if s.least == 0 || latency < s.least {
		s.least = latency
	}
	s.most = max(s.most, latency)
	s.sum += latency
}

func (s tally) any() bool   { return true }
func (s tally) leaks() bool { return s.left > 0 }

// around reports whether the calls ended on both sides of the grant.
func (s tally) around() bool {
	return s.granted > 0 && s.refused > 0 && (s.undone > 0 || !s.form.undoes || !s.visible)
}

func (s tally) String() string {
	from, of := time.Duration(0), "its beginning"
	mean := s.sum / time.Duration(max(s.calls, 1))
	if s.form.waits {
		from, of = -mean, "the release"
	}
	undone := ""
	if s.form.undoes {
		undone = fmt.Sprintf(", %d of them granted and undone", s.undone)
	}
	return fmt.Sprintf("%d locks left by %d calls, each ended at random from %v to %v after %s (on average, as it adapted; the latter was %v to %v): %d errors%s; %d grants, %d of them as ctx had just ended; %d connections given up",
		s.left, s.calls, us(from), us(2*mean), of, us(2*s.least), us(2*s.most), s.refused, undone, s.granted, s.late, s.gaveUp)
}

func us(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
