package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

// A container is a server in a Docker container.
type container struct {
	docker   *dockertest.Pool
	options  *dockertest.RunOptions
	url      *url.URL
	dog      *watchdog
	resource *dockertest.Resource // nil until it has been created
}

// containerScript removes the container named $1, if it is still there.
const containerScript = `cat >/dev/null; docker rm --force --volumes "$1" >/dev/null 2>&1; :`

func newContainer(ctx context.Context, docker *dockertest.Pool, image string, settings []setting) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c := &container{docker: docker}
	password := random(16)
	repository, tag := splitImage(image)
	c.options = &dockertest.RunOptions{
		Name:         "pgadvisory-test-" + random(6),
		Repository:   repository,
		Tag:          tag,
		Env:          []string{"POSTGRES_PASSWORD=" + password, "POSTGRES_INITDB_ARGS=" + strings.Join(initdbArgs, " ")},
		Cmd:          []string{"postgres"},
		ExposedPorts: []string{"5432/tcp"},
		PortBindings: map[dc.Port][]dc.PortBinding{"5432/tcp": {{HostIP: "127.0.0.1", HostPort: port}}},
	}
	for _, s := range slices.Concat(speed, logging, settings) {
		c.options.Cmd = append(c.options.Cmd, "-c", s.name+"="+s.value)
	}
	c.url = &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     net.JoinHostPort("127.0.0.1", port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	if c.dog, err = watch(containerScript, c.options.Name); err != nil {
		return nil, err
	}
	return launch(ctx, &Server{kind: kindDocker, url: c.url, engine: c})
}

// start makes the container, pulling its image if need be, or starts it again.
func (c *container) start(ctx context.Context) (err error) {
	if c.resource == nil {
		c.resource, err = c.docker.RunWithOptions(c.options, func(h *dc.HostConfig) { h.PublishAllPorts = false })
	} else {
		err = c.docker.Client.StartContainerWithContext(c.options.Name, nil, ctx)
	}
	if err != nil {
		return fmt.Errorf("container of image %s:%s: %w", c.options.Repository, c.options.Tag, err)
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
		state, err := c.docker.Client.InspectContainerWithContext(c.options.Name, ctx)
		if err != nil {
			return err
		}
		if !state.State.Running {
			text, _ := c.logged()
			return fmt.Errorf("the container has ended:\n%s", tail(text, 20))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *container) stop(mode string) error {
	return c.kill(map[string]dc.Signal{"fast": dc.SIGINT, "immediate": dc.SIGQUIT}[mode])
}

func (c *container) crash() error { return c.kill(dc.SIGKILL) }

// kill sends a signal to the server and waits for the end of the container.
func (c *container) kill(sig dc.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), lifecycleTimeout)
	defer cancel()
	if err := c.docker.Client.KillContainer(dc.KillContainerOptions{ID: c.options.Name, Signal: sig, Context: ctx}); err != nil {
		return err
	}
	_, err := c.docker.Client.WaitContainerWithContext(c.options.Name, ctx)
	return err
}

func (c *container) pause() error { return c.docker.Client.PauseContainer(c.options.Name) }

func (c *container) resume() error { return c.docker.Client.UnpauseContainer(c.options.Name) }

// logMark begins the lines that log has the server write. They are left out.
const logMark = "pgtest-mark-"

// log returns what Docker has of the log. A line takes a while to get there, so
// a server that answers is made to write one more, which is waited for.
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

func (c *container) logged() (string, error) {
	var text bytes.Buffer
	err := c.docker.Client.Logs(dc.LogsOptions{
		Container: c.options.Name, OutputStream: &text, ErrorStream: &text, Stdout: true, Stderr: true,
	})
	return text.String(), err
}

func (c *container) remove() error {
	// A container that could be created but not started has no resource.
	err := c.docker.RemoveContainerByName(c.options.Name)
	return errors.Join(err, c.dog.clean())
}

// splitImage splits repository:tag, where the repository's host may have a port.
func splitImage(image string) (repository, tag string) {
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}
