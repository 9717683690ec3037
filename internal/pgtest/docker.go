package pgtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"
)

// image returns the image of servers in Docker: an official image, or one that behaves like it.
func (m machine) image() string {
	if image := m.getenv("PGADVISORY_TEST_IMAGE"); image != "" {
		return image
	}
	return "postgres:18"
}

// docker returns the endpoint of the Docker engine, if the engine answers: that of DOCKER_HOST,
// otherwise the usual socket, otherwise the one that the docker command uses.
func (m machine) docker(ctx context.Context) (endpoint string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if host := m.getenv("DOCKER_HOST"); host != "" {
		return host, answers(ctx, host)
	}
	endpoint = "unix:///var/run/docker.sock"
	if err = answers(ctx, endpoint); err == nil {
		return endpoint, nil
	}
	out, cmdErr := exec.CommandContext(ctx, "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").Output()
	if host := strings.TrimSpace(string(out)); cmdErr == nil && host != "" {
		return host, answers(ctx, host)
	}
	return "", err
}

// answers pings the engine at endpoint.
func answers(ctx context.Context, endpoint string) error {
	if strings.HasPrefix(endpoint, "npipe:") {
		return nil // Docker's client checks it
	}
	socket, local := strings.CutPrefix(endpoint, "unix://")
	if !local {
		return fmt.Errorf("the engine is at %s: only an engine on this machine can be used", endpoint)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	// In plain text: net/http would double the time that the first "make demo" compiles.
	if _, err := io.WriteString(conn, "GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"); err != nil {
		return err
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if _, code, _ := strings.Cut(status, " "); !strings.HasPrefix(code, "200 ") {
		return fmt.Errorf("the engine at %s answers %q", endpoint, strings.TrimSpace(status))
	}
	return nil
}
