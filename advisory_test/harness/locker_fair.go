package harness

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Fair runs a test for both drivers at once.
func Fair(t *testing.T, test func(t *testing.T, p *Pool)) {
	t.Parallel()
	AtOnce(t, func(all *Together) {
		for _, d := range Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) { test(t, d.Open(t, pgtest.URL(t))) })
		}
	})
}
