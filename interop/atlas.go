package interop

import (
	"hash/fnv"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Atlas returns the key that Atlas (ariga.io/atlas) makes of the name of a lock. The name is
// "atlas_migrate_execute" for atlas migrate apply, unless its --lock-name says another. On the
// development database it is "atlas_migrate_diff" for atlas migrate diff, and "atlas_lint" for
// atlas migrate lint, with "_" and the schema behind if the URL names one.
func Atlas(name string) advisory.Key {
	h := fnv.New32()
	h.Write([]byte(name))
	return advisory.Int64(int64(h.Sum32()))
}
