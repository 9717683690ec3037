package advisory

import (
	"time"

	"github.com/pgadvisory/pgadvisory/internal/option"
)

// A ConnOption is an option of the calls of package sqlconn. An option of another package does not
// compile.
type ConnOption interface{ ApplyConn(*option.Call) }

// A TxOption is an option of the calls of package xact, both in a transaction of the caller's and in
// one that the call begins.
type TxOption interface {
	ApplyTx(*option.Call)
	ApplyBegin(*option.Call)
}

// A LockerOption is an option of the calls of a [Locker].
type LockerOption interface{ ApplyLocker(*option.Call) }

// A SemaphoreOption is an option of the calls of a locker.Semaphore. A [Mode] is not: slots are
// exclusive.
type SemaphoreOption interface {
	LockerOption
	ApplySemaphore(*option.Call)
}

// An Option is an option of the calls of packages sqlconn and xact, and of a [Locker].
type Option interface {
	ConnOption
	TxOption
	LockerOption
}

// A CallOption is an [Option] that the calls of a locker.Semaphore accept too.
type CallOption interface {
	Option
	SemaphoreOption
}

// An ObserverOption is an option of every call, and of locker.New.
type ObserverOption interface {
	CallOption
	ApplyNew(*option.Locker)
}

// MaxWait limits how long a call waits for its lock, apart from ctx, which also limits the work.
// A wait that MaxWait ends fails with a [*NotAcquiredError]. MaxWait(0) is one try. A Try… call
// ignores MaxWait.
//
// MaxWait does not limit the wait for a free pool connection: while all connections are in use, Do
// and TryDo of packages sqlconn and xact wait until ctx ends. Give ctx a deadline for that.
func MaxWait(d time.Duration) CallOption {
	return option.Set(func(c *option.Call) {
		wait := d
		c.MaxWait = &wait
	})
}

// Label names the kind of lock for logs, metrics and [Holder]. Use a word of low cardinality, such
// as "account", where keys are many.
func Label(s string) CallOption {
	return option.Set(func(c *option.Call) { c.Label = s })
}

// HoldersTo makes a Try… call whose key is not free set *dst to the holders of the key. Otherwise the
// call sets *dst to nil. If the key is not free, the call takes one more round trip, or three in a
// transaction of the caller's. Of several keys it has the holders of one that was not free.
//
// The list is empty if the key has become free meanwhile, or if the query fails. A call of a Locker waits
// for the answer for one second. Exception: a call of package sqlconn fails with the error of the query.
//
// A call that waits ignores HoldersTo, because its [*NotAcquiredError] names the holders, also with
// MaxWait(0). Calls that run at the same time need a dst each.
func HoldersTo(dst *[]Holder) CallOption {
	return option.Set(func(c *option.Call) { c.HoldersTo = dst })
}

// WithObserver reports each event of the lock to o. WithObserver(nil) has no effect.
func WithObserver(o Observer) ObserverOption {
	return observerOption{
		Set: func(c *option.Call) {
			if o != nil {
				c.Observer = o
			}
		},
		o: o,
	}
}

type observerOption struct {
	option.Set
	o Observer
}

func (w observerOption) ApplyNew(l *option.Locker) {
	if w.o != nil {
		l.Observer = w.o
	}
}

// WithWaitingAfter sets after which time a wait sends its first [Waiting] event. It is 5 s by default,
// which 0 stands for. A further event follows each time that the wait has doubled. Without an Observer
// it has no effect.
//
// Each event costs a query for the holders of the key:
//
//   - A Locker makes it on the session that takes locks, while the wait continues on another. If there
//     is no answer within a second, the event comes without the holders.
//   - Other waits make it on their own connection, between two slices or tries. So a later event may
//     come up to 400 ms late, and the wait goes on a round trip later, or three in a transaction of the
//     caller's. If the query fails, the event has no holders. Exception: while sqlconn.Lock polls, an error
//     of the query ends the wait, because it has ended a transaction that may be open.
//   - sqlconn.PlainWait cannot make it: its events have no holders.
func WithWaitingAfter(d time.Duration) ObserverOption {
	return waitingAfter{
		Set: func(c *option.Call) { c.WaitingAfter = d },
		d:   d,
	}
}

type waitingAfter struct {
	option.Set
	d time.Duration
}

func (w waitingAfter) ApplyNew(l *option.Locker) { l.WaitingAfter = w.d }
