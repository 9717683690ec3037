// Command embedded fetches PostgreSQL's programs for package pgtest, which starts it only if there
// is no other server. So others need not compile an HTTP client, nor download what unpacks the
// archive.
//
//	embedded URL SHA256 FOLDER
//
// It prints one line to its standard error when the download begins. It prints to its standard
// output why it failed, or nothing. It gives up at an interrupt, and at the end of its standard
// input, which comes also when the other program is killed.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/embedded/folder"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "embedded URL SHA256 FOLDER: for package pgtest")
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGPIPE) // of the output of a killed program
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	fetch := fetch{
		url: os.Args[1], sha256: os.Args[2], to: folder.Folder(os.Args[3]),
		client: http.DefaultClient, patience: 30 * time.Second, news: os.Stderr,
	}
	if err := fetch.run(ctx); err != nil {
		fmt.Println(err)
	}
}
