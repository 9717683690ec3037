package harness

import (
	"fmt"
	"slices"
	"time"
)

// A Spread is a row of times that were measured.
type Spread []time.Duration

func (s Spread) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[len(s)/2]
}

func (s Spread) String() string {
	if len(s) == 0 {
		return "nothing measured"
	}
	return fmt.Sprintf("median %v, max %v of %d", Round(s.Median()), Round(slices.Max(s)), len(s))
}

// Round leaves three digits or so.
func Round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit < time.Second && unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}
