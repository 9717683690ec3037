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

// The line of Error stays short: who wants the statement asks for it.
func TestHolderEndSQL(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 250000000, time.UTC)
	for want, h := range map[string]advisory.Holder{
		"SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity JOIN pg_catalog.pg_locks USING (pid) WHERE pid = 812 AND backend_start = '2026-03-01 12:00:00.25+00'" +
			" AND locktype = 'advisory' AND classid = '0' AND objid = '4820' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted;": {PID: 812, Key: advisory.Int64(4820), BackendStart: start},
		"SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity JOIN pg_catalog.pg_locks USING (pid) WHERE pid = 812" +
			" AND locktype = 'advisory' AND classid = '4294967295' AND objid = '2' AND objsubid = 2 AND mode = 'ShareLock' AND granted;": {PID: 812, Key: advisory.Pair(-1, 2), Mode: advisory.Shared},
		"ROLLBACK PREPARED 'it''s';": {Key: advisory.Int64(1), Prepared: "it's"},
		"":                           {PID: 812},
	} {
		if got := h.EndSQL(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if strings.Contains((&advisory.NotAcquiredError{Holders: []advisory.Holder{h}}).Error(), "pg_terminate_backend") {
			t.Error("it is in the line of the error")
		}
	}
	if got := (advisory.Holder{Key: advisory.Int64(1)}).EndSQL(); got != "" {
		t.Errorf("a prepared transaction without an identifier: %s", got)
	}
	if got, want := (advisory.Holder{Prepared: "it's\n"}).String(), `the prepared transaction E'it''s\U0000000A'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
