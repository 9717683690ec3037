package locker

import "github.com/pgadvisory/pgadvisory/internal/option"

// WithStandbyIfNamed is [WithStandby] that does without a standby while there is none to ask: while
// synchronous_standby_names of the server is empty. So it serves two servers alone, and Patroni
// without synchronous_mode_strict, which empties the names when the standby is away.
//
//   - Until the Locker has had one commit confirmed, empty names are refused as WithStandby does.
//   - After that the Locker goes on while the server says, each time that it commits, that the
//     names are empty. Locks stay, and are given out, also on new sessions and at a promoted
//     server. All Contexts end a deadline after the last commit with that answer was sent, as if
//     the server were silent.
//   - The Locker's Observer gets an [advisory.Unconfirmed] event, and [Locker.Ping] fails with
//     reason [advisory.NoStandby], as a warning: locks are given out.
//   - When there are names again, proof is required again, within the deadline.
//   - A promoted server gives out no lock for the deadline and one second, with names or without.
//
// While the names are empty, two servers may grant one key. An old primary that is cut off, and
// whose names are emptied by a failover manager or a person, keeps its holders and gives out locks,
// while a standby is promoted. That ends when the Locker's pool has led to the new primary, or when
// the old one is stopped. The same applies until the first confirmation after there are names
// again, and to a standby that had not received the last commits when it was promoted: its deadline
// and one second may be over by then. Give all Lockers of a key the same option.
func WithStandbyIfNamed() Option {
	return newOption(func(s *option.Locker) { s.Standby, s.StandbyIfNamed = true, true })
}
