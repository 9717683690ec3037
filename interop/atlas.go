package interop

import (
	"hash/fnv"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Atlas returns the key that Atlas (ariga.io/atlas) computes from the name of a lock. For atlas
// migrate apply the default name is "atlas_migrate_execute".
func Atlas(name string) advisory.Key {
	h := fnv.New32()
	h.Write([]byte(name))
	return advisory.Int64(int64(h.Sum32()))
}
