package locker

import "github.com/pgadvisory/pgadvisory/internal/option"

// WithStandby requires proof that the server is still the primary: a standby confirms it. Without it, a
// primary that is cut off from a standby which is then promoted goes on granting locks, and so does the
// promoted server.
//
// The Locker commits a message of the write-ahead log every two seconds, or every quarter of its
// deadline where that is less, on a connection of its own, and waits for the server's synchronous
// standbys. If none of these commits is confirmed within the deadline, 9.75 s by default, the Contexts of all
// locks end with [advisory.ErrLost] and [advisory.ErrUnconfirmed]. After a promotion the new primary gives out
// no lock for the deadline and one second, so that the locks of the old one have ended.
//
// It needs synchronous_standby_names such that each standby that may be promoted confirms each commit,
// one failover time for all Lockers of a key, and clocks of the servers within a second. If
// synchronous_standby_names is empty, Ping and each call fail with [advisory.ErrUnsafeServer], reason
// [advisory.NoStandby]. An outage of the standbys that is longer than the deadline costs the locks.
//
// The pool needs one connection more: at least three. A Locker that holds nothing closes its
// connections after ten seconds, so that it costs the server nothing.
func WithStandby() Option {
	return newOption(func(s *option.Locker) { s.Standby = true })
}
