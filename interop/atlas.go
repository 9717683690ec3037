package interop

import (
	"hash/fnv"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Atlas returns the key that Atlas (ariga.io/atlas) makes of the name of a lock, which is
// "atlas_migrate_execute" by default for atlas migrate apply.
func Atlas(name string) advisory.Key {
	h := fnv.New32()
	h.Write([]byte(name))
	return advisory.Int64(int64(h.Sum32()))
}
