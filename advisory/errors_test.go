package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

var sentinels = []error{
	advisory.ErrNotAcquired, advisory.ErrLost, advisory.ErrNotHeld, advisory.ErrAlreadyHeld,
	advisory.ErrDeadlock, advisory.ErrLockTableFull, advisory.ErrInvalidKey, advisory.ErrClosed,
	advisory.ErrStaleSnapshot, advisory.ErrUnsafeServer,
}

// checkIs checks that err is the sentinel want, wrapped too, and no other.
func checkIs(t *testing.T, err, want error) {
	t.Helper()
	wrapped := fmt.Errorf("reconcile: %w", err)
	for _, sentinel := range sentinels {
		if got := errors.Is(wrapped, sentinel); got != (sentinel == want) {
			t.Errorf("errors.Is(%v, %v) = %v", err, sentinel, got)
		}
	}
}

func TestSentinelsAreDistinctAndSayWhoseTheyAre(t *testing.T) {
	for _, err := range sentinels {
		checkIs(t, err, err)
		if !strings.HasPrefix(err.Error(), "pgadvisory: ") {
			t.Errorf("%q", err)
		}
	}
}

func TestNotAcquiredError(t *testing.T) {
	full := &advisory.NotAcquiredError{
		Key: advisory.Pair(12, 34), Mode: advisory.Shared, Waited: 2*time.Second + 300*time.Nanosecond,
		Holders: []advisory.Holder{
			{PID: 812, User: "app", Application: "billing", Client: "10.0.0.7:50412", Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
			{},
		},
		Cause: context.DeadlineExceeded,
	}
	checkIs(t, full, advisory.ErrNotAcquired)
	if !errors.Is(full, context.DeadlineExceeded) || errors.Is(full, context.Canceled) {
		t.Error("it is not the error of its ctx")
	}
	want := "pgadvisory: lock not acquired: 12:34 (shared) after 2s: context deadline exceeded; " +
		"held by pid 812, user app, application billing, client 10.0.0.7:50412, in this state since 2026-03-01T12:00:00Z and a prepared transaction"
	if full.Error() != want {
		t.Errorf("got  %s\nwant %s", full, want)
	}
	var target *advisory.NotAcquiredError
	if !errors.As(fmt.Errorf("reconcile: %w", full), &target) || target.Holders[0].PID != 812 {
		t.Errorf("errors.As gives %+v", target)
	}

	maxWait := &advisory.NotAcquiredError{Key: advisory.Int64(4820)}
	checkIs(t, maxWait, advisory.ErrNotAcquired)
	if errors.Is(maxWait, context.DeadlineExceeded) {
		t.Error("MaxWait's end is ctx's")
	}
	if want := "pgadvisory: lock not acquired: 4820 (exclusive) after 0s"; maxWait.Error() != want {
		t.Errorf("got  %s\nwant %s", maxWait, want)
	}
}

func TestUnsafeServerError(t *testing.T) {
	for _, reason := range []advisory.UnsafeReason{advisory.Standby, advisory.Pooler, advisory.NotPostgreSQL, advisory.NoExclusion, advisory.StalePrimary} {
		err := &advisory.UnsafeServerError{Reason: reason, Detail: "seen"}
		checkIs(t, err, advisory.ErrUnsafeServer)
		if want := fmt.Sprintf("pgadvisory: unsafe server: %s: seen", reason); err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		var target *advisory.UnsafeServerError
		if !errors.As(fmt.Errorf("start-up: %w", err), &target) || target.Reason != reason {
			t.Errorf("errors.As gives %+v", target)
		}
	}
	if got, want := (&advisory.UnsafeServerError{Reason: advisory.Standby}).Error(), "pgadvisory: unsafe server: hot standby"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestHolderOfThisProcess(t *testing.T) {
	h := advisory.Holder{PID: 812, Local: true, Label: "account", Client: "local"}
	if got, want := h.String(), "pid 812 of this process, label account, client local"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
