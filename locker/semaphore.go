package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A Semaphore lets at most n holders in, over all processes that use its key.
type Semaphore struct {
	l     *Locker
	key   advisory.Key
	n     int
	slots []advisory.Key
}

// Semaphore returns the semaphore of key with n slots. A slot's key depends on key and on
// the slot's number alone: while a fleet goes from one n to another, the larger counts.
// An n below 1 is told by each of its calls.
func (l *Locker) Semaphore(key advisory.Key, n int) *Semaphore {
	s := &Semaphore{l: l, key: key, n: n}
	if key != (advisory.Key{}) {
		for i := range n {
			s.slots = append(s.slots, slotKey(key, i))
		}
	}
	return s
}

// slotKey never changes: it would let too many in while old and new run side by side.
func slotKey(key advisory.Key, i int) advisory.Key {
	return advisory.Name("pgadvisory", "semaphore", key.String(), strconv.Itoa(i))
}

// shuffled starts with any slot, so that not all who come try the same.
func (s *Semaphore) shuffled(op string) ([]advisory.Key, error) {
	switch {
	case s.key == (advisory.Key{}):
		return nil, lockfn.Error(op, s.key, advisory.Exclusive, advisory.ErrInvalidKey)
	case s.n < 1:
		return nil, lockfn.Error(op, s.key, advisory.Exclusive, fmt.Errorf("a semaphore of n = %d: it must be at least 1", s.n))
	}
	start := rand.N(s.n)
	return append(s.slots[start:len(s.slots):len(s.slots)], s.slots[:start]...), nil
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

// TryAcquire takes a slot if one is free. The Lock's Key is that of the slot.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...advisory.SemaphoreOption) (advisory.Lock, bool, error) {
	slots, err := s.shuffled("try semaphore")
	if err != nil {
		return none(s.key, advisory.Exclusive), false, err
	}
	return s.l.TryLockAny(ctx, slots, lockerOptions(opts)...)
}

// Acquire waits for a slot. An [*advisory.NotAcquiredError] has the semaphore's key, and the
// holder of one slot.
func (s *Semaphore) Acquire(ctx context.Context, opts ...advisory.SemaphoreOption) (advisory.Lock, error) {
	slots, err := s.shuffled("semaphore")
	if err != nil {
		return none(s.key, advisory.Exclusive), err
	}
	lock, err := s.l.LockAny(ctx, slots, lockerOptions(opts)...)
	if busy, ok := errors.AsType[*advisory.NotAcquiredError](err); ok {
		ours := *busy
		ours.Key = s.key
		err = &ours
	}
	return lock, err
}

// TryDo runs fn in a slot if one is free.
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context) error, opts ...advisory.SemaphoreOption) (ran bool, err error) {
	if fn == nil {
		return false, lockfn.Error("try semaphore", s.key, advisory.Exclusive, errNilFn)
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
		return lockfn.Error("semaphore", s.key, advisory.Exclusive, errNilFn)
	}
	lock, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lock.(*handle).do(ctx, fn)
}
