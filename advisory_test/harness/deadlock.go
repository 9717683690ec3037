package harness

import (
	"github.com/pgadvisory/pgadvisory/advisory"
)

const (
	exclusive = advisory.Exclusive
	Shared    = advisory.Shared
)
