package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// WithAdvisoryLock returns the key that the Ruby gem with_advisory_lock makes of a name: a
// String, a Symbol or what else it calls to_s on. Of a Numeric n it makes another key,
// advisory.Pair(n & 0x7fffffff, 0).
//
// The environment variable WITH_ADVISORY_LOCK_PREFIX, where it is set to a number, takes the
// place of the 0. A prefix that begins with no digit changes nothing.
func WithAdvisoryLock(name string) advisory.Key {
	return advisory.Pair(int32(crc(name)&0x7fffffff), 0)
}
