package harness

import (
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// IsPooler fails the test unless err says that there is a pooler in between.
func IsPooler(t testing.TB, what string, err error) bool {
	t.Helper()
	var unsafe *advisory.UnsafeServerError
	if !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Pooler {
		t.Errorf("%s: %v", what, err)
		return false
	}
	return true
}
