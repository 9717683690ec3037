package pooler

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A server that only seems to have the functions says that it grants and releases, always.
func TestFunctionsThatDoNotWhatTheySay(t *testing.T) {
	stub := func(_ context.Context, text string) (int64, error) {
		switch {
		case strings.Contains(text, "pg_stat_activity"):
			return 0, refused{}
		case strings.Contains(text, "generate_series"):
			return lockfn.BesideUnreal, nil
		}
		return 1, nil
	}
	_, err := Probe(t.Context(), stub, stub)
	var unsafe *advisory.UnsafeServerError
	if !errors.As(err, &unsafe) || unsafe.Reason != advisory.NoExclusion {
		t.Error(err)
	}
}

// refused is an error of a server that does not know pg_stat_activity.
type refused struct{}

func (refused) Error() string    { return "no such relation" }
func (refused) SQLState() string { return "42P01" }

// An error on the second connection does not leave the key locked on the first.
func TestKeyIsReleasedAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	locked := 0
	first := func(_ context.Context, text string) (int64, error) {
		switch {
		case strings.Contains(text, "pg_stat_activity"):
			return 1, nil // sees nothing
		case strings.Contains(text, "pg_try_advisory_lock("):
			locked++
		case strings.Contains(text, "pg_advisory_unlock"):
			locked--
		}
		return 1, nil
	}
	second := func(context.Context, string) (int64, error) { return 0, broken }
	if _, err := Probe(t.Context(), first, second); !errors.Is(err, broken) || locked != 0 {
		t.Errorf("%v, %d locks", err, locked)
	}
}

// A proxy that takes its sessions in turn is found without a sight of what they do, however many it
// has.
func TestSessionsInTurn(t *testing.T) {
	for sessions := 1; sessions <= 50; sessions++ {
		turn, owner := 0, -1
		exec := func(_ context.Context, text string) (int64, error) {
			session := turn % sessions
			turn++
			switch {
			case strings.Contains(text, "pg_stat_activity"):
				return 0, refused{}
			case text == lockfn.OnOtherServer:
				return 0, nil
			case strings.Contains(text, "pg_locks"): // releases
				if session != owner {
					return 0, nil
				}
				owner = -1
				return lockfn.ProbeKeys{}.Count(), nil
			case strings.Contains(text, "generate_series"): // tries what the other connection holds
				if session == owner {
					return lockfn.BesideSame, nil
				}
				return lockfn.BesideBusy, nil
			}
			owner = session
			return 1, nil
		}
		_, err := Probe(t.Context(), exec, exec)
		var unsafe *advisory.UnsafeServerError
		if !errors.As(err, &unsafe) || unsafe.Reason != advisory.Pooler {
			t.Errorf("%d sessions: %v", sessions, err)
		}
	}
}

// The first connection's session ends, and its locks with it, before they are tried. That says
// nothing about the server.
func TestSessionThatEndsInTheProbe(t *testing.T) {
	gone := errors.New("the session is gone")
	first := func(_ context.Context, text string) (int64, error) {
		switch {
		case strings.Contains(text, "pg_stat_activity"):
			return 0, refused{}
		case strings.Contains(text, "pg_locks"): // releases
			return 0, gone
		}
		return 1, nil
	}
	second := func(_ context.Context, text string) (int64, error) {
		if strings.Contains(text, "pg_stat_activity") {
			return 0, refused{}
		}
		return lockfn.BesideGranted, nil
	}
	if _, err := Probe(t.Context(), first, second); !errors.Is(err, gone) || errors.Is(err, advisory.ErrUnsafeServer) {
		t.Error(err)
	}
}
