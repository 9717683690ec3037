// Package advisory_test holds the black-box suites: behaviour, faults and load,
// against a real PostgreSQL through real drivers.
package advisory_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) {
	work()
	pgtest.Main(m)
}
