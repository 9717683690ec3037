package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
)

// image returns the image of servers in Docker: one of the official images, or
// what behaves alike.
func (m machine) image() string {
	if image := m.getenv("PGADVISORY_TEST_IMAGE"); image != "" {
		return image
	}
	return "postgres:18"
}

// docker returns the Docker engine, if it answers: that of DOCKER_HOST, otherwise
// the one at the usual socket, otherwise the one that the docker command uses.
func (m machine) docker(ctx context.Context) (*dockertest.Pool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	host := m.getenv("DOCKER_HOST")
	pool, err := answering(ctx, host)
	if err != nil && host == "" {
		out, cmdErr := exec.CommandContext(ctx, "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").Output()
		if host = strings.TrimSpace(string(out)); cmdErr == nil && host != "" {
			pool, err = answering(ctx, host)
		}
	}
	if err != nil {
		return nil, err
	}
	if host := pool.Client.Endpoint(); !strings.HasPrefix(host, "unix:") && !strings.HasPrefix(host, "npipe:") {
		return nil, fmt.Errorf("the engine is at %s: only one on this machine will do", host)
	}
	return pool, nil
}

func answering(ctx context.Context, endpoint string) (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool(endpoint)
	if err != nil {
		return nil, err
	}
	return pool, pool.Client.PingWithContext(ctx)
}
