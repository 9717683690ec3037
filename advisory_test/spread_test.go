package advisory_test

import (
	"fmt"
	"slices"
	"time"
)

// A spread is a row of times that were measured.
type spread []time.Duration

func (s spread) median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[len(s)/2]
}

func (s spread) String() string {
	if len(s) == 0 {
		return "nothing measured"
	}
	return fmt.Sprintf("median %v, max %v of %d", round(s.median()), round(slices.Max(s)), len(s))
}

// round leaves three digits or so.
func round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit < time.Second && unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}
