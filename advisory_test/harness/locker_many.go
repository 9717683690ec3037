package harness

import (
	"github.com/pgadvisory/pgadvisory/advisory"
)

func KeysUpTo(n int) (keys []advisory.Key) {
	for i := range n {
		keys = append(keys, advisory.Int64(int64(i)))
	}
	return keys
}
