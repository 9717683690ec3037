package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Prisma returns the key that Prisma Migrate locks.
func Prisma() advisory.Key { return advisory.Int64(72707369) }
