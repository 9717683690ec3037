package failover_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/failover"
)

// Each failover time and heartbeat that Validate allows keeps what the package says.
func TestTimesKeepTheirOrder(t *testing.T) {
	valid := 0
	for f := failover.Min; f <= failover.Max; f += max(100*time.Millisecond, f/100) {
		for h := time.Millisecond; h < time.Second; h += 37 * time.Millisecond {
			ts := failover.Of(f, h)
			if ts.Validate() != nil {
				continue
			}
			valid++
			if free := h + ts.UserTimeout + time.Second; free > f {
				t.Errorf("%v, %v: free after %v", f, h, free)
			}
			if dropped := ts.Idle + ts.Interval; dropped != ts.UserTimeout {
				t.Errorf("%v, %v: an idle link is dropped after %v, another after %v", f, h, dropped, ts.UserTimeout)
			}
			if margin := ts.UserTimeout - ts.Deadline; margin < time.Second || ts.Deadline < 2*h {
				t.Errorf("%v, %v: the client gives up %v before the server, after %v", f, h, margin, ts.Deadline)
			}
			if ts.Slice > ts.Deadline/2 || ts.Slice > 8*time.Second || ts.Check < h {
				t.Errorf("%v, %v: %+v", f, h, ts)
			}
			if ts.Beat > ts.Deadline/4 || ts.Beat > 2*time.Second || ts.Beat < 100*time.Millisecond || ts.Grace < ts.Deadline+time.Second {
				t.Errorf("%v, %v: %+v", f, h, ts)
			}
			if ts.Idle < time.Second || ts.UserTimeout%time.Second != 0 {
				t.Errorf("%v, %v: the server takes whole seconds, and 0 as its default: %+v", f, h, ts)
			}
		}
	}
	if valid < 10_000 {
		t.Errorf("%d pairs of times are valid", valid)
	}
}

func TestValidate(t *testing.T) {
	for _, v := range []struct {
		failover, heartbeat time.Duration
		want                string
	}{
		{failover.Default, failover.DefaultHeartbeat, ""},
		{failover.Min, failover.DefaultHeartbeat, ""},
		{failover.Max, failover.DefaultHeartbeat, ""},
		{failover.Default, time.Millisecond, ""},
		{failover.Default, time.Millisecond - 1, "WithHeartbeat(999.999µs): it must be less than 1s, and at least 1ms"},
		{failover.Default, time.Second, "WithHeartbeat(1s): it must be less than 1s, and at least 1ms"},
		{failover.Min - 1, failover.DefaultHeartbeat, "WithFailover(3.999999999s): it must be at least 4s"},
		{failover.Max + 1, failover.DefaultHeartbeat, "WithFailover(9h0m0.000000001s): it must be at most 9h0m0s"},
		{failover.Min, 900 * time.Millisecond, "WithFailover(4s) is too short for WithHeartbeat(900ms)"},
	} {
		text := ""
		if err := failover.Of(v.failover, v.heartbeat).Validate(); err != nil {
			text = err.Error()
		}
		if text != v.want {
			t.Errorf("%v, %v: %q, want %q", v.failover, v.heartbeat, text, v.want)
		}
	}
}
