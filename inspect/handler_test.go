package inspect

import (
	"database/sql"
	"testing"
)

// As with http.Handle, the program that forgot its database learns of it at its start.
func TestHandlerOfNothing(t *testing.T) {
	for name, db := range map[string]DB{"nil": nil, "a nil *sql.DB": (*sql.DB)(nil)} {
		func() {
			defer func() {
				const want = "pgadvisory: inspect.Handler: db is nil"
				if r := recover(); r != want {
					t.Errorf("%s: panic %v, want %q", name, r, want)
				}
			}()
			Handler(db)
		}()
	}
}
