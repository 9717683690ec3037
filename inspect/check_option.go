package inspect

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A CheckOption is an option of [Check].
type CheckOption interface{ applyCheck(*checkSettings) }

type checkSettings struct {
	promotedAfter time.Duration // 0: not given
	failover      time.Duration
}

type checkOption func(*checkSettings)

func (f checkOption) applyCheck(s *checkSettings) { f(s) }

// PromotedAfter says how long after its last answer a primary may be replaced, at the earliest: the
// failover manager's time, which the server does not know. With Patroni's usual settings it is about
// 20 s.
func PromotedAfter(d time.Duration) CheckOption {
	return checkOption(func(s *checkSettings) { s.promotedAfter = d })
}

// Failover says what locker.WithFailover the programs use. It is 15 s by default, as that is.
func Failover(d time.Duration) CheckOption {
	return checkOption(func(s *checkSettings) { s.failover = d })
}

func readCheckOptions(opts []CheckOption) (s checkSettings, err error) {
	s.failover = failover.Default
	if err := settings.Apply(opts, func(o CheckOption) { o.applyCheck(&s) }); err != nil {
		return s, err
	}
	if s.promotedAfter < 0 {
		return s, fmt.Errorf("PromotedAfter(%v): it must not be negative", s.promotedAfter)
	}
	if s.failover < failover.Min || s.failover > failover.Max {
		return s, fmt.Errorf("Failover(%v): it must be from %v to %v", s.failover, failover.Min, failover.Max)
	}
	return s, nil
}
