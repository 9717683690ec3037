package locker

import (
	"container/list"
	"context"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A request is a caller that wants the lock.
type request struct {
	gate     *gate
	ctx      context.Context
	settings settings.Call
	once     bool   // a try
	patient  bool   // one of a call that then waits: it makes no attempt to connect during a pause
	stamp    uint64 // when it came: see Locker.stamp
	ended    int    // sessions that ended before they answered
	claim    *claim // shared with requests of which only one is to be granted; may be nil
	answered bool
	lock     *handle // if it was granted
	err      error
	done     chan struct{}

	inAll, inExclusive, inTries *list.Element // its places in the line
}

// A claim is shared by several requests of one caller. The first that is granted, or
// fails, ends it and its ctx.
type claim struct {
	won    *request
	ctx    context.Context
	cancel context.CancelFunc
}

func (c *claim) end(r *request) {
	if c.won == nil {
		c.won = r
		c.cancel()
	}
}

func (r *request) answer(err error) {
	if r.answered {
		return
	}
	r.answered, r.err = true, err
	close(r.done)
	if r.claim != nil && err != nil && !r.once && !errors.Is(err, errLeft) {
		r.claim.end(r)
	}
}
