package endsql_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/endsql"
)

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"x":         `'x'`,
		"it's":      `'it''s'`,
		`a\b'`:      `E'a\\b'''`,
		"a\nb\x1b[": `E'a\U0000000Ab\U0000001B['`,
	} {
		if got := endsql.Quote(s); got != want {
			t.Errorf("%q: %s, not %s", s, got, want)
		}
	}
}

func TestOnSession(t *testing.T) {
	seen := time.Date(2026, 3, 1, 13, 0, 0, 123456000, time.FixedZone("", 3600))
	want := "SELECT pg_catalog.pg_cancel_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid = 812 AND state_change = '2026-03-01 12:00:00.123456+00' AND granted;"
	if got := endsql.OnSession("pg_cancel_backend", "pg_catalog.pg_stat_activity", 812, endsql.At("state_change", seen), "granted"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRollbackPrepared(t *testing.T) {
	if got, want := endsql.RollbackPrepared("it's"), "ROLLBACK PREPARED 'it''s';"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
