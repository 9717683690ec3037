package harness

import (
	"time"
)

const (
	QuickFailover = 4 * time.Second // the shortest that there is: a deadline of 1 s
	QuickDeadline = time.Second
	Heartbeat     = 500 * time.Millisecond // by default
)

// Reconnect drops the connections that a restarted server knows nothing of.
func (p *Pool) Reconnect() {
	p.SetMaxIdleConns(0)
	p.SetMaxIdleConns(2)
}
