// Incident stages the incident of docs/runbook.md, so that an operator can practise. An idle
// session holds lock 4820, two workers wait for it, and an index build waits for them. The program
// prints how to reach the server, which is a temporary one, and ends with Ctrl-C.
//
//	go run ./examples/incident
//	go run ./examples/incident -document docs/runbook.md   # run its blocks, and replace their outputs
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/pgadvisory/pgadvisory/internal/runbook"
)

func main() {
	log.SetFlags(0)
	document := flag.String("document", "", "Markdown `file`: run its blocks, and replace their outputs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *document); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, document string) error {
	scene, err := runbook.Set(ctx)
	if err != nil {
		return err
	}
	defer scene.Close()
	if document == "" {
		fmt.Printf("Key 4820 is held, and its job no longer runs. Find the holder:\n\n    psql %q\n    DATABASE_URL=%q go run ./cmd/pgadvisory ls\n\ndocs/runbook.md has the steps. Ctrl-C ends the program.\n", scene.URL, scene.URL)
		<-ctx.Done()
		return nil
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	tools, err := runbook.NewTools(ctx)
	if err != nil {
		return err
	}
	defer tools.Close()
	var outputs []string
	for _, b := range runbook.Blocks(string(text)) {
		out, err := tools.Run(ctx, scene.URL, b)
		if err != nil {
			return fmt.Errorf("%s of %s: %w\n%s", b.Name(), document, err, out)
		}
		outputs = append(outputs, out)
	}
	filled, err := runbook.Fill(string(text), outputs)
	if err != nil {
		return err
	}
	return os.WriteFile(document, []byte(filled), 0o644)
}
