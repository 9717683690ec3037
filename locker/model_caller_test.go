package locker_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// slots are the keys of a semaphore: they never change.
func slots(key advisory.Key, n int) (keys []string) {
	for i := range n {
		keys = append(keys, advisory.Name("pgadvisory", "semaphore", key.String(), strconv.Itoa(i)).String())
	}
	return keys
}

// A caller runs its steps, and then releases all that it has.
func (m *machine) caller(process int, list []step) {
	c := &caller{m: m, process: process, l: m.lockers[process]}
	for _, s := range list {
		time.Sleep(m.rest(s.pause))
		c.step(s)
	}
	for _, h := range c.has {
		m.b.unlock(h)
	}
}

type caller struct {
	m       *machine
	process int
	l       *locker.Locker
	has     []*held
	had     []*held
}

func (c *caller) step(s step) {
	switch s.what % 32 {
	case 0, 1, 2, 3:
		c.tryLock(s)
	case 4, 5, 6, 7:
		c.lock(s)
	case 8, 9:
		c.tryLockAll(s)
	case 10, 11:
		c.lockAll(s)
	case 12, 13:
		c.tryLockAny(s)
	case 14, 15:
		c.lockAny(s)
	case 16:
		c.tryAcquire(s)
	case 17:
		c.acquire(s)
	case 18, 19:
		c.tryDo(s)
	case 20, 21:
		c.do(s)
	case 22, 23:
		c.downgrade(s)
	case 24:
		c.unlockAgain(s)
	default:
		c.unlock(s)
	}
}

// limited returns a context that ends by itself, by a cancel or never, and the option of a limit.
func (c *caller) limited(s step) (context.Context, context.CancelFunc, []advisory.LockerOption, time.Duration) {
	limit := limits[int(s.arg)%len(limits)]
	opts := []advisory.LockerOption{c.m.mode(s.mode)}
	switch s.arg >> 6 {
	case 0:
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		return ctx, cancel, opts, limit
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		stop := time.AfterFunc(limit, cancel)
		return ctx, func() { stop.Stop(); cancel() }, opts, limit
	}
	return context.Background(), func() {}, append(opts, advisory.MaxWait(limit)), limit
}

func (c *caller) call(name string, keys []advisory.Key, mode advisory.Mode, limit time.Duration, ctx context.Context) *call {
	k := &call{process: c.process, name: name, mode: mode, limit: limit, ctx: ctx, try: limit < 0}
	for _, key := range keys {
		if !slices.Contains(k.keys, key.String()) {
			k.keys = append(k.keys, key.String())
		}
	}
	return k
}

// given notes the end of a call.
func (c *caller) given(k *call, err error, locks ...advisory.Lock) {
	c.has = append(c.has, c.m.b.ends(k, err, locks...)...)
}

// one is the lock that a call returned, or none.
func one(lock advisory.Lock, ok bool) []advisory.Lock {
	if !ok {
		return nil
	}
	return []advisory.Lock{lock}
}

func (c *caller) tryLock(s step) {
	mode, key := c.m.mode(s.mode), c.m.key(s.keys)
	k := c.call("TryLock", []advisory.Key{key}, mode, -1, context.Background())
	c.m.b.begins(k)
	lock, ok, err := c.l.TryLock(k.ctx, key, mode)
	c.given(k, err, one(lock, ok)...)
}

func (c *caller) lock(s step) {
	ctx, cancel, opts, limit := c.limited(s)
	defer cancel()
	key := c.m.key(s.keys)
	k := c.call("Lock", []advisory.Key{key}, c.m.mode(s.mode), limit, ctx)
	c.m.b.begins(k)
	lock, err := c.l.Lock(ctx, key, opts...)
	c.given(k, err, one(lock, err == nil)...)
}

func (c *caller) tryLockAll(s step) {
	mode, keys := c.m.mode(s.mode), c.m.some(s.keys)
	k := c.call("TryLockAll", keys, mode, -1, context.Background())
	k.all = true
	c.m.b.begins(k)
	locks, _, err := c.l.TryLockAll(k.ctx, keys, mode)
	c.given(k, err, locks...)
}

func (c *caller) lockAll(s step) {
	ctx, cancel, opts, limit := c.limited(s)
	defer cancel()
	keys := c.m.some(s.keys)
	k := c.call("LockAll", keys, c.m.mode(s.mode), limit, ctx)
	k.all = true
	c.m.b.begins(k)
	locks, err := c.l.LockAll(ctx, keys, opts...)
	c.given(k, err, locks...)
}

func (c *caller) tryLockAny(s step) {
	mode, keys := c.m.mode(s.mode), c.m.some(s.keys)
	k := c.call("TryLockAny", keys, mode, -1, context.Background())
	c.m.b.begins(k)
	lock, ok, err := c.l.TryLockAny(k.ctx, keys, mode)
	c.given(k, err, one(lock, ok)...)
}

func (c *caller) lockAny(s step) {
	ctx, cancel, opts, limit := c.limited(s)
	defer cancel()
	keys := c.m.some(s.keys)
	k := c.call("LockAny", keys, c.m.mode(s.mode), limit, ctx)
	c.m.b.begins(k)
	lock, err := c.l.LockAny(ctx, keys, opts...)
	c.given(k, err, one(lock, err == nil)...)
}

func (c *caller) semaphore(s step, limit time.Duration, ctx context.Context) (*locker.Semaphore, *call) {
	key, n := c.m.key(s.keys), 1+int(s.mode%3)
	return c.l.Semaphore(key, n), &call{process: c.process, name: "semaphore", keys: slots(key, n), limit: limit, ctx: ctx, try: limit < 0}
}

func (c *caller) tryAcquire(s step) {
	sem, k := c.semaphore(s, -1, context.Background())
	c.m.b.begins(k)
	lock, ok, err := sem.TryAcquire(k.ctx)
	c.given(k, err, one(lock, ok)...)
}

func (c *caller) acquire(s step) {
	limit := limits[int(s.arg)%len(limits)]
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	sem, k := c.semaphore(s, limit, ctx)
	c.m.b.begins(k)
	lock, err := sem.Acquire(ctx)
	c.given(k, err, one(lock, err == nil)...)
}

var errWork = errors.New("work")

// work is under the lock of k. It returns an error now and then.
func (c *caller) work(k *call, s step, h **held, ran *bool) func(context.Context) error {
	return func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		*h, *ran = c.m.b.ends(k, nil, lock)[0], true
		again, ok, err := c.l.TryLock(ctx, lock.Key())
		if ok { // for the lock was lost meanwhile
			again.Unlock()
		}
		c.m.b.do(func() {
			if lost := (*h).lock.Context().Err() != nil || k.ctx.Err() != nil; !errors.Is(err, advisory.ErrAlreadyHeld) && !lost {
				c.m.b.fail("error", "a try inside of the work under its own lock: %v", err)
			}
		})
		select {
		case <-time.After(c.m.rest(s.pause >> 4)):
		case <-ctx.Done():
			c.m.b.do(func() {
				if lock.Context().Err() == nil && k.ctx.Err() == nil {
					c.m.b.fail("loss", "the ctx of the work under %s ends: %v", lock.Key(), context.Cause(ctx))
				}
			})
		}
		c.m.b.unlocks(*h)
		if s.mode&0x10 != 0 {
			return errWork
		}
		return nil
	}
}

// worked checks what Do and TryDo return, which have unlocked h.
func (c *caller) worked(k *call, s step, h *held, err error) {
	want := s.mode&0x10 != 0
	c.m.b.do(func() {
		if want != errors.Is(err, errWork) {
			c.m.b.fail("work", "%s returned %v", k.name, err)
		}
	})
	if want && !errors.Is(err, advisory.ErrLost) && !errors.Is(err, advisory.ErrClosed) {
		err = nil
	}
	c.m.b.unlocked(h, false, err)
}

func (c *caller) tryDo(s step) {
	mode, key := c.m.mode(s.mode), c.m.key(s.keys)
	k := c.call("TryDo", []advisory.Key{key}, mode, -1, context.Background())
	c.m.b.begins(k)
	var h *held
	var inside bool
	ran, err := c.l.TryDo(k.ctx, key, c.work(k, s, &h, &inside), mode)
	c.done(k, s, h, ran, inside, err)
}

func (c *caller) do(s step) {
	ctx, cancel, opts, limit := c.limited(s)
	defer cancel()
	key := c.m.key(s.keys)
	k := c.call("Do", []advisory.Key{key}, c.m.mode(s.mode), limit, ctx)
	c.m.b.begins(k)
	var h *held
	var inside bool
	err := c.l.Do(ctx, key, c.work(k, s, &h, &inside), opts...)
	c.done(k, s, h, inside, inside, err)
}

func (c *caller) done(k *call, s step, h *held, ran, inside bool, err error) {
	switch {
	case ran != inside:
		c.m.b.do(func() { c.m.b.fail("work", "%s says that it ran: %v", k.name, ran) })
	case !ran:
		c.given(k, err)
	default:
		c.worked(k, s, h, err)
	}
}

func (c *caller) unlock(s step) {
	if len(c.has) == 0 {
		return
	}
	i := int(s.arg) % len(c.has)
	h := c.has[i]
	c.has, c.had = slices.Delete(c.has, i, i+1), append(c.had, h)
	c.m.b.unlock(h)
}

func (c *caller) unlockAgain(s step) {
	if len(c.had) > 0 {
		h := c.had[int(s.arg)%len(c.had)]
		c.m.b.unlock(h)
	}
}

func (c *caller) downgrade(s step) {
	list := c.has
	if s.arg&0x80 != 0 && s.arg&0x40 != 0 {
		list = c.had
	}
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.Background(), func() {}
	if s.mode&4 != 0 {
		ctx, cancel = context.WithTimeout(ctx, limits[int(s.pause)%len(limits)])
	}
	defer cancel()
	c.m.b.downgrade(ctx, list[int(s.arg)%len(list)])
}
