package inspect_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// TestNilIsRefused has each function say what is nil, instead of a panic.
func TestNilIsRefused(t *testing.T) {
	db := harness.Drivers[0].Open(t, pgtest.URL(t)).DB
	var none context.Context
	for name, call := range map[string]func(ctx context.Context, db *sql.DB) error{
		"Locks":   func(ctx context.Context, db *sql.DB) error { _, err := inspect.Locks(ctx, db); return err },
		"Foreign": func(ctx context.Context, db *sql.DB) error { _, err := inspect.Foreign(ctx, db); return err },
		"Holders": func(ctx context.Context, db *sql.DB) error {
			_, err := inspect.Holders(ctx, db, harness.Key)
			return err
		},
		"Suspects": func(ctx context.Context, db *sql.DB) error { _, err := inspect.Suspects(ctx, db); return err },
		"Check":    func(ctx context.Context, db *sql.DB) error { _, err := inspect.Check(ctx, db); return err },
	} {
		refused := func(err error, words string) {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v; want %q", name, err, words)
			}
		}
		refused(call(none, db), "ctx is nil")
		refused(call(t.Context(), nil), "db is nil")
	}
	if _, err := inspect.Locks(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "db is nil") {
		t.Errorf("Locks of a DB that is nil: %v", err)
	}
}
