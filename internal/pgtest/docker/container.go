package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/docker/wire"
)

// A container is a server in a Docker container.
type container struct {
	docker  *dockertest.Pool
	options *dockertest.RunOptions
	created bool
}

func newContainer(r wire.Request) (*container, error) {
	docker, err := dockertest.NewPool(r.Endpoint)
	if err != nil {
		return nil, err
	}
	repository, tag := splitImage(r.Image)
	return &container{docker: docker, options: &dockertest.RunOptions{
		Name:         r.Name,
		Repository:   repository,
		Tag:          tag,
		Env:          r.Env,
		Cmd:          r.Cmd,
		ExposedPorts: []string{"5432/tcp"},
		PortBindings: map[dc.Port][]dc.PortBinding{"5432/tcp": {{HostIP: "127.0.0.1", HostPort: r.Port}}},
	}}, nil
}

// start creates the container, and pulls its image if necessary; or it starts the container again.
func (c *container) start(ctx context.Context) (err error) {
	if c.created {
		err = c.docker.Client.StartContainerWithContext(c.options.Name, nil, ctx)
	} else {
		_, err = c.docker.RunWithOptions(c.options, func(h *dc.HostConfig) { h.PublishAllPorts = false })
		c.created = err == nil
	}
	if err != nil {
		return fmt.Errorf("container of image %s:%s: %w", c.options.Repository, c.options.Tag, err)
	}
	return nil
}

func (c *container) stop(mode string) error {
	return c.kill(map[string]dc.Signal{"fast": dc.SIGINT, "immediate": dc.SIGQUIT}[mode])
}

func (c *container) crash() error { return c.kill(dc.SIGKILL) }

// kill sends a signal to the server and waits for the end of the container.
func (c *container) kill(sig dc.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.docker.Client.KillContainer(dc.KillContainerOptions{ID: c.options.Name, Signal: sig, Context: ctx}); err != nil {
		return err
	}
	_, err := c.docker.Client.WaitContainerWithContext(c.options.Name, ctx)
	return err
}

func (c *container) pause() error { return c.docker.Client.PauseContainer(c.options.Name) }

func (c *container) resume() error { return c.docker.Client.UnpauseContainer(c.options.Name) }

// logged returns the log that Docker has, even if the container has ended.
func (c *container) logged() (string, error) {
	var text bytes.Buffer
	err := c.docker.Client.Logs(dc.LogsOptions{
		Container: c.options.Name, OutputStream: &text, ErrorStream: &text, Stdout: true, Stderr: true,
	})
	return text.String(), err
}

// running reports whether the container runs.
func (c *container) running() (bool, error) {
	state, err := c.docker.Client.InspectContainer(c.options.Name)
	return err == nil && state.State.Running, err
}

// remove removes the container, even if it was created but could not be started.
func (c *container) remove() error { return c.docker.RemoveContainerByName(c.options.Name) }

// splitImage splits repository:tag, where the repository's host may have a port.
func splitImage(image string) (repository, tag string) {
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}
