// Command bench measures this module against the same work done by hand, and against
// goose's session locker, side by side in one run, and prints the ratios. With -docs it
// also writes the table and a plot of them into that folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func main() {
	log.SetFlags(0)
	docs := flag.String("docs", "", "folder to write bench.md and bench.png into")
	rounds := flag.Int("rounds", 11, "rounds of each measurement, of which the median counts")
	only := flag.String("only", "", "measure only what has this word in its name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *docs, *only, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, docs, only string, rounds int) error {
	if docs != "" { // now, and not after all the measurements
		if _, err := os.Stat(docs); err != nil {
			return err
		}
	}
	server, err := pgtest.Start(ctx, "max_locks_per_transaction=1024")
	if err != nil {
		return err
	}
	defer server.Close()
	var results []result
	for _, m := range measurements {
		if !strings.Contains(m.name, only) {
			continue
		}
		for _, d := range drivers {
			if m.driver != "" && m.driver != d.name {
				continue
			}
			r, err := m.measure(ctx, server, d, rounds)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", m.name, d.name, err)
			}
			fmt.Println(r.line())
			results = append(results, r)
		}
	}
	if docs == "" {
		return nil
	}
	about := fmt.Sprintf("PostgreSQL %d.%d", server.Version()/10000, server.Version()%100)
	if err := os.WriteFile(filepath.Join(docs, "bench.md"), []byte(table(results, rounds, about)), 0o644); err != nil {
		return err
	}
	return plotTo(filepath.Join(docs, "bench.png"), results)
}
