package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Rails returns the key that the migrations of Active Record lock in a database. Gems for
// several tenants, such as apartment, may have changed it.
func Rails(database string) advisory.Key {
	return advisory.Int64(2053462845 * int64(crc(database)))
}
