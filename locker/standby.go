package locker

import "github.com/pgadvisory/pgadvisory/internal/option"

// WithStandby requires proof, from a standby, that the server is still the primary. Without it a
// primary that is cut off from its standbys goes on granting locks after one of them is promoted, and
// the promoted server grants the same keys.
//
// The Locker commits a message of the write-ahead log every two seconds, or every quarter of its
// deadline where that is less, and waits until the synchronous standbys have it. It uses a connection
// of its own for that.
//
//   - If no commit is confirmed within the deadline, 9.75 s by default, the Contexts of all locks end
//     with [advisory.ErrLost] and [advisory.ErrUnconfirmed]. An outage of the standbys that is longer
//     costs the locks.
//   - No lock is given out before a commit is confirmed. Calls wait for that, at most for the deadline.
//   - After a promotion the new primary gives out no lock for the deadline and one second: by then the
//     locks of the old one have ended.
//   - If synchronous_standby_names is empty, Ping, tries and the first waits fail with
//     [advisory.ErrUnsafeServer], reason [advisory.NoStandby]. A wait of a Locker that has had a session
//     goes on, and Lead campaigns, until there are names. If they become empty later, nothing is
//     confirmed any more. [WithStandbyIfNamed] then goes on.
//   - If a commit is not confirmed before the next is due, or fails, the Locker's Observer gets an
//     [advisory.Unconfirmed] event, with the time until the locks end. [Locker.Ping] fails
//     meanwhile.
//   - If the pool has meanwhile led to a newer timeline of the system, the server is an old
//     primary. Its locks are lost at the next commit, with reason [advisory.StalePrimary].
//
// It holds only if each standby that may be promoted confirms each commit, if all Lockers of a key have
// this option and the same failover time, and if the servers' clocks are within a second. See
// docs/failover.md.
//
// The pool needs at least three connections, and one more after a loss until the work under the lost
// locks has returned. A Locker that has held nothing and was asked for nothing for ten seconds closes
// its connections, so that it has the server commit nothing.
func WithStandby() Option {
	return newOption(func(s *option.Locker) { s.Standby = true })
}
