// Package failover computes the times after which a Locker and its server give up.
//
// Let t0 be the moment at which the last answered statement was sent, F the failover time, H the
// heartbeat.
//
//	U = F - H - 1 s, in whole seconds    tcp_user_timeout of the session
//	U - 1 s and 1 s                      tcp_keepalives_idle and tcp_keepalives_interval, one probe
//	D = U - max(1 s, U/4)                the deadline: the client ends the locks' Contexts at t0 + D
//
// The server drops a link on which its answer is not acknowledged after U. It drops an idle link
// after idle + n·interval, with the least n for which that is at least U: with the times above, U.
// Both clocks start no earlier than t0, since the client had acknowledged all that it answered.
// So the server frees the locks no earlier than t0 + U, and the client stops at least a second
// before that.
//
// The server frees the locks at the latest H + U + 1 s after the client vanished, which is at most F.
//
// Where a standby confirms that the server is still the primary:
//
//	B = min(2 s, D/4)    the interval of the confirmed heartbeats
//	G = D + 1 s          the grace: a promoted server gives out no lock earlier than G after the
//	                     last commit that it replayed
package failover

import (
	"fmt"
	"time"
)

const (
	Default          = 15 * time.Second
	DefaultHeartbeat = 500 * time.Millisecond

	Min = 4 * time.Second
	Max = 9 * time.Hour // kernels take no more for tcp_keepalives_idle

	minHeartbeat = time.Millisecond
	endHeartbeat = time.Second // a heartbeat is less

	longestSlice = 8 * time.Second
	longestBeat  = 2 * time.Second

	// ClockSkew is by how much the clock of a promoted server may be ahead of the old one's.
	ClockSkew = time.Second
)

// Times are the times of a Locker. Deadline and Slice count from the moment at which the last
// answered statement was sent.
type Times struct {
	Heartbeat   time.Duration
	Failover    time.Duration
	UserTimeout time.Duration // tcp_user_timeout
	Idle        time.Duration // tcp_keepalives_idle
	Interval    time.Duration // tcp_keepalives_interval
	Deadline    time.Duration // when the client gives up
	Slice       time.Duration // the longest slice of a wait
	Check       time.Duration // the longest check of the server on a session that holds locks
	Beat        time.Duration // the interval of the heartbeats that a standby confirms
	Grace       time.Duration // for how long after its last replayed commit a promoted server gives out no lock
}

// Of returns the times of a failover time and a heartbeat, which [Times.Validate] checks.
func Of(failover, heartbeat time.Duration) Times {
	t := Times{Failover: failover, Heartbeat: heartbeat, Interval: time.Second}
	t.UserTimeout = (failover - heartbeat - time.Second).Truncate(time.Second)
	t.Idle = t.UserTimeout - t.Interval
	t.Deadline = t.UserTimeout - t.margin()
	// A lock that was granted at the end of a slice has half of its deadline left: the slice's
	// beginning is t0.
	t.Slice = min(longestSlice, t.Deadline/2)
	// Pings wait for the check, but a far link takes some ten round trips.
	t.Check = max(heartbeat, t.Deadline/4)
	t.Beat = min(longestBeat, t.Deadline/4)
	t.Grace = t.Deadline + ClockSkew
	return t
}

// margin is the stop margin: how long before the server the client gives up.
func (t Times) margin() time.Duration { return max(time.Second, t.UserTimeout/4) }

// Margin returns by how much a Locker with a failover time and the default heartbeat gives up
// before its server.
func Margin(failover time.Duration) time.Duration { return Of(failover, DefaultHeartbeat).margin() }

// Validate returns an error if no Locker can keep these times.
func (t Times) Validate() error {
	switch {
	case t.Heartbeat < minHeartbeat || t.Heartbeat >= endHeartbeat:
		return fmt.Errorf("WithHeartbeat(%v): it must be less than %v, and at least %v", t.Heartbeat, endHeartbeat, minHeartbeat)
	case t.Failover < Min:
		return fmt.Errorf("WithFailover(%v): it must be at least %v", t.Failover, Min)
	case t.Failover > Max:
		return fmt.Errorf("WithFailover(%v): it must be at most %v", t.Failover, Max)
	case t.Deadline < 2*t.Heartbeat:
		return fmt.Errorf("WithFailover(%v) is too short for WithHeartbeat(%v)", t.Failover, t.Heartbeat)
	}
	return nil
}
