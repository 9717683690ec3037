package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Prisma returns the key that Prisma Migrate locks, unless PRISMA_SCHEMA_DISABLE_ADVISORY_LOCK
// is set.
func Prisma() advisory.Key { return advisory.Int64(72707369) }
