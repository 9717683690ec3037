// Command docker runs one PostgreSQL server in a Docker container for package pgtest. pgtest starts
// it only if there is no other server, so that others need not compile Docker's client.
//
// It reads one request a line from its standard input, and answers each with one line. Both are
// JSON of package wire. At the end of the input, which comes also when the other program is killed,
// it removes the container.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/docker/wire"
)

func main() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the program ends at the end of its input
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(r io.Reader, w io.Writer) (err error) {
	requests, answers := json.NewDecoder(r), json.NewEncoder(w)
	var c *container
	defer func() {
		if c != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	for {
		var request wire.Request
		if err := requests.Decode(&request); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var answer wire.Answer
		var err error
		if request.Do == wire.Create {
			c, err = newContainer(request)
		} else if c == nil {
			err = errors.New("no container has been created")
		} else {
			answer.Text, err = c.do(context.Background(), request)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

func (c *container) do(ctx context.Context, r wire.Request) (text string, err error) {
	switch r.Do {
	case wire.Start:
		return "", c.start(ctx)
	case wire.Stop:
		return "", c.stop(r.Mode)
	case wire.Crash:
		return "", c.crash()
	case wire.Pause:
		return "", c.pause()
	case wire.Resume:
		return "", c.resume()
	case wire.Log:
		return c.logged()
	case wire.State:
		running, err := c.running()
		if running {
			return wire.Running, nil
		}
		return "", err
	}
	return "", fmt.Errorf("there is no request %q", r.Do)
}
