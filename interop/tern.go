package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Tern returns the key that tern (github.com/jackc/tern) locks.
func Tern() advisory.Key { return advisory.Int64(9628173550095224) }
