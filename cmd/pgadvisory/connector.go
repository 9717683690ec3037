package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/lib/pq"
)

// A connector connects with TLS. If plain is not nil and the server does not support TLS, it connects
// without. psql does that by default; lib/pq does not.
type connector struct {
	first   *pq.Connector
	plain   *pq.Connector
	without atomic.Bool // the server does not support TLS
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.without.Load() {
		return c.plain.Connect(ctx)
	}
	conn, err := c.first.Connect(ctx)
	if c.plain != nil && errors.Is(err, pq.ErrSSLNotSupported) {
		c.without.Store(true)
		return c.plain.Connect(ctx)
	}
	return conn, err
}

func (c *connector) Driver() driver.Driver { return c.first.Driver() }
