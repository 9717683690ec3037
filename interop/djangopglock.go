package interop

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// DjangoPGLock returns the key that django-pglock makes of a name. An int that is given to it
// is the key itself, [advisory.Int64], and a str of digits is a name. A decorator that is given
// nothing takes module and qualified name of the function, as in "app.tasks.close_day".
func DjangoPGLock(name string) advisory.Key {
	sum := sha256.Sum256([]byte(name))
	return advisory.Int64(int64(binary.LittleEndian.Uint64(sum[:])))
}
