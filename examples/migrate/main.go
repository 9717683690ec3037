// Migrate is a schema migration that every process of a service runs when it starts. Five processes
// call Migrate at the same moment. One of them makes each step, and the others wait and skip it.
// Then a step fails, and is repaired.
//
// The program plays the director and the services. It uses a database of its own on the server of
// DATABASE_URL, or on a temporary server. It checks on the server that each step was made once and
// completely, and fails if not.
//
//	go run ./examples/migrate
//
// Copy from migrate.go. The files steps.go, story.go and schema.go only stage it.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/examples/internal/stage"
)

func main() { stage.Run(direct, serve) }

// The acts, and the steps of each.
var acts = map[string][]Step{
	"three steps":   steps,
	"broken step":   append(steps[:3:3], broken),
	"repaired step": append(steps[:3:3], repaired),
}

// serve is a process of the service: it migrates each time that the director asks.
func serve(ctx context.Context, role *stage.Role) error {
	db, err := sqlx.ConnectContext(ctx, "postgres", role.URL)
	if err != nil {
		return err
	}
	defer db.Close()
	role.Ready()
	for {
		act, ok := role.Hear()
		if !ok {
			return nil
		}
		var made []string
		start := time.Now()
		err := Migrate(ctx, db, acts[act], func(s Step, ours bool) {
			if ours {
				made = append(made, fmt.Sprint(s.Version))
			}
		})
		if err != nil {
			role.Say("failed at " + strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		by := "others made the steps"
		if len(made) > 0 {
			by = "made " + strings.Join(made, ", ") + " itself"
		}
		role.Say(fmt.Sprintf("done after %d ms, %s", time.Since(start).Milliseconds(), by))
	}
}
