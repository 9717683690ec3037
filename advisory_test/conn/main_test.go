package conn_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) {
	harness.Work()
	pgtest.Main(m)
}
