package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// WithAdvisoryLock returns the key that the Ruby gem with_advisory_lock computes from a name, if the
// environment variable WITH_ADVISORY_LOCK_PREFIX is not set.
func WithAdvisoryLock(name string) advisory.Key {
	return advisory.Pair(int32(crc(name)&0x7fffffff), 0)
}
