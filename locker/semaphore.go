package locker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// MaxSlots is the largest n of a [Semaphore].
const MaxSlots = 1 << 20

// A Semaphore lets at most n holders in, over all processes that use its key. All of them give the
// same n.
//
// While slots are free, the cost of a call does not grow with n: it asks for a few slots, chosen at
// random. With nine of ten slots taken it sends two or three statements. If all slots are taken, it
// asks for each of them, with one statement for a thousand slots.
type Semaphore struct {
	l   *Locker
	key advisory.Key
	n   int
}

// Semaphore returns the semaphore of key with n slots. A slot's key depends only on key and on the
// number of the slot. So while a fleet changes from one n to another, the larger n counts. Each call
// of the semaphore fails if n is below 1 or above [MaxSlots].
func (l *Locker) Semaphore(key advisory.Key, n int) *Semaphore {
	return &Semaphore{l: l, key: key, n: n}
}

// slotKey returns the key of a slot. It must never change: old and new processes together would let
// too many in.
func slotKey(key advisory.Key, i int) advisory.Key {
	return advisory.Name("pgadvisory", "semaphore", key.String(), strconv.Itoa(i))
}

// What an error says that was attempted.
const (
	tryOp  = "try to acquire a slot of semaphore"
	waitOp = "acquire a slot of semaphore"
)

// firstSlots is how many slots a call asks for first.
const firstSlots = 8

// slots returns the slots in random order. It starts at a random slot and adds a random step that has
// no common divisor with n, so it comes to each slot once.
func (s *Semaphore) slots(ctx context.Context, op string, opts []advisory.SemaphoreOption) (choice, settings.Call, error) {
	switch {
	case s.key == (advisory.Key{}):
		return choice{}, settings.Call{}, lockfn.Error(op, s.key, advisory.Exclusive, advisory.ErrInvalidKey)
	case s.n < 1 || s.n > MaxSlots:
		return choice{}, settings.Call{}, lockfn.Error(op, s.key, advisory.Exclusive, fmt.Errorf("a semaphore of n = %d: it must be from 1 to %d", s.n, MaxSlots))
	}
	start, step := rand.N(s.n), 1+rand.N(s.n)
	for gcd(step, s.n) != 1 {
		step = 1 + rand.N(s.n)
	}
	at := func(i int) advisory.Key { return slotKey(s.key, int((int64(start)+int64(i)*int64(step))%int64(s.n))) }
	set, err := s.l.checkCall(ctx, lockerOptions(opts), s.key)
	return choice{name: s.key, n: s.n, first: firstSlots, at: at}, set, err
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// lockerOptions returns opts as options of the Locker's calls.
func lockerOptions(opts []advisory.SemaphoreOption) []advisory.LockerOption {
	list := make([]advisory.LockerOption, len(opts))
	for i, o := range opts {
		if o != nil { // else it stays nil, which is an error there
			list[i] = o
		}
	}
	return list
}

// TryAcquire takes a slot if one is free. The Lock's Key is that of the slot. The result is false
// only after each slot was refused. For a million slots that takes a thousand statements and two or
// three seconds. TryAcquire detects the end of ctx between them.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...advisory.SemaphoreOption) (advisory.Lock, bool, error) {
	slots, settings, err := s.slots(ctx, tryOp, opts)
	if slots.n == 0 {
		return noLock(s.key, advisory.Exclusive), false, err
	}
	return s.l.tryLockAny(ctx, tryOp, slots, settings, err)
}

// Acquire waits for a slot, as [Locker.LockAny] waits for a key. It waits in the queues of at most 128
// slots, and tries the others now and then. With some thousands of slots it finds a slot that another
// process has freed within a quarter of a second. With more it takes up to 12 passes over all slots:
// half a minute if one of a million is free. An [*advisory.NotAcquiredError] has the key of the
// semaphore and the holder of one slot.
func (s *Semaphore) Acquire(ctx context.Context, opts ...advisory.SemaphoreOption) (advisory.Lock, error) {
	slots, settings, err := s.slots(ctx, waitOp, opts)
	if slots.n == 0 {
		return noLock(s.key, advisory.Exclusive), err
	}
	return s.l.lockAny(ctx, waitOp, slots, settings, err)
}

// TryDo runs fn in a slot if one is free.
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context) error, opts ...advisory.SemaphoreOption) (ran bool, err error) {
	if fn == nil {
		return false, lockfn.Error(tryOp, s.key, advisory.Exclusive, work.ErrNilFn)
	}
	lock, ok, err := s.TryAcquire(ctx, opts...)
	if !ok {
		return false, err
	}
	return true, lock.(*handle).do(ctx, fn)
}

// Do waits for a slot and runs fn in it.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...advisory.SemaphoreOption) error {
	if fn == nil {
		return lockfn.Error(waitOp, s.key, advisory.Exclusive, work.ErrNilFn)
	}
	lock, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lock.(*handle).do(ctx, fn)
}
