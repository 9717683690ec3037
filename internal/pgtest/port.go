package pgtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort returns a port on 127.0.0.1 on which no process listens. It is below the ports that
// systems use for outgoing connections, so none of those takes it while the server is stopped.
func freePort() (string, error) {
	const from, to = 20000, 32000
	var err error
	for range 50 {
		port := strconv.Itoa(from + rand.IntN(to-from))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("no free port from %d to %d: %w", from, to, err)
}
