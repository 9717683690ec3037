package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/docker/wire"
)

// A container is a server in a Docker container. The command docker runs it, so only its users
// download and compile Docker's client. The container is removed when that command's input ends,
// which it does with this program.
type container struct {
	url  *url.URL
	cmd  *exec.Cmd
	name string

	mu      sync.Mutex // one request at a time
	in, out *os.File
	answers *json.Decoder
}

const dockerCommand = "./internal/pgtest/docker"

func newContainer(ctx context.Context, endpoint, image string, settings []setting) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := random(16)
	create := wire.Request{
		Do: wire.Create, Endpoint: endpoint, Name: "pgadvisory-test-" + random(6), Image: image, Port: port,
		Env: []string{"POSTGRES_PASSWORD=" + password, "POSTGRES_INITDB_ARGS=" + strings.Join(initdbArgs, " ")},
		Cmd: []string{"postgres"},
	}
	for _, s := range slices.Concat(speed, logging, settings) {
		create.Cmd = append(create.Cmd, "-c", s.name+"="+s.value)
	}
	c := &container{name: create.Name, url: &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     net.JoinHostPort("127.0.0.1", port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}}
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	if _, err := c.ask(create); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: Docker: %w", err), c.remove())
	}
	return launch(ctx, &Server{kind: kindDocker, url: c.url, engine: c})
}

// run starts the command.
func (c *container) run(ctx context.Context) error {
	dir, err := moduleFolder(ctx)
	if err != nil {
		return fmt.Errorf("a server in Docker: %w", err)
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	c.in, c.out, c.answers = in, out, json.NewDecoder(out)
	c.cmd = exec.Command("go", "run", dockerCommand)
	c.cmd.Dir = dir
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirIn, theirOut, os.Stderr
	apart(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	return nil
}

// ask sends a request and returns the answer's text.
func (c *container) ask(r wire.Request) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := json.NewEncoder(c.in).Encode(r); err != nil {
		return "", err
	}
	var answer wire.Answer
	if err := c.answers.Decode(&answer); err != nil {
		return "", fmt.Errorf("go run %s has ended: %w", dockerCommand, err)
	}
	if answer.Error != "" {
		return "", errors.New(answer.Error)
	}
	return answer.Text, nil
}

func (c *container) do(what string) error {
	_, err := c.ask(wire.Request{Do: what})
	return err
}

func (c *container) start(ctx context.Context) error {
	if err := c.do(wire.Start); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lifecycleTimeout)
	defer cancel()
	for {
		_, err := serverVersion(ctx, c.url)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("no connection: %w", err), c.crash())
		}
		state, err := c.ask(wire.Request{Do: wire.State})
		if err != nil {
			return err
		}
		if state != wire.Running {
			text, _ := c.logged()
			return fmt.Errorf("the container has ended:\n%s", tail(text, 20))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *container) stop(mode string) error {
	_, err := c.ask(wire.Request{Do: wire.Stop, Mode: mode})
	return err
}

func (c *container) crash() error { return c.do(wire.Crash) }

func (c *container) pause() error { return c.do(wire.Pause) }

func (c *container) resume() error { return c.do(wire.Resume) }

func (c *container) logged() (string, error) { return c.ask(wire.Request{Do: wire.Log}) }

// logMark begins the lines that log makes the server write. log omits them.
const logMark = "pgtest-mark-"

// log returns the log that Docker has. A line takes a while to arrive, so log makes a server that
// answers write one more, and waits for that.
func (c *container) log(answers bool) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	mark := ""
	if answers {
		mark = logMark + random(6)
		err := execute(ctx, c.url, "SET log_min_messages = log", "SET log_min_error_statement = panic",
			"SET log_error_verbosity = terse", "DO $$BEGIN RAISE LOG '"+mark+"'; END$$")
		if err != nil {
			mark = ""
		}
	}
	for {
		text, err := c.logged()
		if err != nil {
			return "", err
		}
		if strings.Contains(text, mark) || ctx.Err() != nil {
			lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool { return strings.Contains(line, logMark) })
			return strings.Join(lines, ""), nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// remove ends the command, which removes the container.
func (c *container) remove() error {
	return errors.Join(c.in.Close(), c.cmd.Wait(), c.out.Close())
}
