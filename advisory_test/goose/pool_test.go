package goose_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
)

// How large a pool each of goose's two ways needs: the SessionLocker's lock is on the connection that
// goose migrates on, and the Locker's on one of its own, for which goose's leaves no room in a pool
// of one.
func TestPoolsOfOneAndTwo(t *testing.T) {
	needs := map[string]int{"SessionLocker": 1, "Locker": 2}
	for way, option := range ways {
		for _, driver := range []string{"postgres", "pgx"} {
			for size := 1; size <= 2; size++ {
				t.Run(fmt.Sprintf("%s/%s/%d", way, driver, size), func(t *testing.T) {
					t.Parallel()
					db := open(t, driver)
					db.SetMaxOpenConns(size)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					// A key for each, since the tests run at once.
					key := advisory.Name("pool", t.Name())
					p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, option(adapt.Goose(key)))
					if err != nil {
						t.Fatal(err)
					}
					_, err = p.Up(ctx)
					switch {
					case size >= needs[way]:
						if err != nil {
							t.Error(err)
						}
					case err == nil || !strings.Contains(err.Error(), "MaxOpenConns 1"):
						t.Errorf("%v, want an error that names MaxOpenConns", err)
					}
					nothingIsLeft(t, db)
				})
			}
		}
	}
}
