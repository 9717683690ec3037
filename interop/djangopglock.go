package interop

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// DjangoPGLock returns the key that django-pglock computes from a name. django-pglock uses a number
// as the key itself: [advisory.Int64].
func DjangoPGLock(name string) advisory.Key {
	sum := sha256.Sum256([]byte(name))
	return advisory.Int64(int64(binary.LittleEndian.Uint64(sum[:])))
}
