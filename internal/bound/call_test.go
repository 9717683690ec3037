package bound

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errDriver = errors.New("the driver's error")

// A call is a Call of a driver that returns after some time, whatever its context.
type call struct {
	takes  time.Duration
	panics any
	// giveUp makes the driver return.
	interruptible bool

	interrupted chan struct{}

	mu      sync.Mutex
	gaveUp  int
	tooLate []answer[int]
}

func (c *call) driver(context.Context) (int, error) {
	select {
	case <-time.After(c.takes):
	case <-c.interrupted:
	}
	if c.panics != nil {
		panic(c.panics)
	}
	return 7, errDriver
}

func (c *call) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp++
	if c.interruptible {
		close(c.interrupted)
	}
}

// run makes the call with a ctx that ends after a while, and returns how long it took.
func (c *call) run(t *testing.T, ends time.Duration) (n int, took time.Duration, err error) {
	c.interrupted = make(chan struct{})
	ctx, end := context.WithTimeout(t.Context(), ends)
	defer end()
	start := time.Now()
	n, err = Call(ctx, c.driver, c.giveUp, c.late)
	return n, time.Since(start), err
}

func (c *call) late(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tooLate = append(c.tooLate, answer[int]{value: n, err: err})
}

// came checks what was called meanwhile: giveUp so many times, and tooLate, with the driver's answer, so many times.
func (c *call) came(t *testing.T, gaveUp, tooLate int) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gaveUp != gaveUp {
		t.Errorf("given up %d times, want %d", c.gaveUp, gaveUp)
	}
	if len(c.tooLate) != tooLate {
		t.Errorf("%d answers were too late, want %d", len(c.tooLate), tooLate)
	}
	for _, a := range c.tooLate {
		if a.value != 7 || a.err != errDriver {
			t.Errorf("the late answer is %d, %v", a.value, a.err)
		}
	}
}

func TestAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &call{takes: time.Second}
		if n, took, err := c.run(t, time.Minute); n != 7 || err != errDriver || took != time.Second {
			t.Errorf("%d, %v after %v", n, err, took)
		}
		time.Sleep(time.Hour)
		c.came(t, 0, 0)
	})
}

// A driver that returns soon after the end is waited for. What it says is in doubt.
func TestAnswerAfterTheEndIsTooLate(t *testing.T) {
	for _, late := range []time.Duration{time.Nanosecond, Abort - time.Nanosecond} {
		synctest.Test(t, func(t *testing.T) {
			c := &call{takes: time.Minute + late}
			n, took, err := c.run(t, time.Minute)
			if n != 0 || err != ErrNoAnswer || took != c.takes {
				t.Errorf("%d, %v after %v", n, err, took)
			}
			c.mu.Lock()
			if len(c.tooLate) != 1 {
				t.Error("the call has returned before its late answer was handled")
			}
			c.mu.Unlock()
			c.came(t, 0, 1)
		})
	}
}

func TestCallOfADriverThatHangsReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &call{takes: time.Hour}
		n, took, err := c.run(t, time.Minute)
		if n != 0 || err != ErrNoAnswer || took != time.Minute+Abort {
			t.Errorf("%d, %v after %v", n, err, took)
		}
		c.came(t, 1, 0)
		time.Sleep(time.Hour)
		c.came(t, 1, 1)
	})
}

func TestDriverThatHangsIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &call{takes: time.Hour, interruptible: true}
		if _, took, err := c.run(t, time.Minute); err != ErrNoAnswer || took != time.Minute+Abort {
			t.Errorf("%v after %v", err, took)
		}
		c.came(t, 1, 1) // without the hour's wait
	})
}

func TestGivingUpMayHangAndMayBeNil(t *testing.T) {
	for name, giveUp := range map[string]func(){"hangs": func() { time.Sleep(time.Hour) }, "nil": nil} {
		synctest.Test(t, func(t *testing.T) {
			c := &call{takes: 30 * time.Minute}
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			start, late := time.Now(), make(chan int, 1)
			_, err := Call(ctx, c.driver, giveUp, func(n int, _ error) { late <- n })
			if took := time.Since(start); err != ErrNoAnswer || took != time.Minute+Abort {
				t.Errorf("giveUp %s: %v after %v", name, err, took)
			}
			if n := <-late; n != 7 {
				t.Errorf("giveUp %s: the late answer is %d", name, n)
			}
		})
	}
}

func TestCallWithACtxThatHasEndedHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &call{takes: time.Nanosecond}
		if n, took, err := c.run(t, 0); n != 0 || err != ErrNoAnswer || took != c.takes {
			t.Errorf("%d, %v after %v", n, err, took)
		}
		c.came(t, 0, 1)
	})
}

func TestPanicOfTheDriverIsOneOfTheCall(t *testing.T) {
	for name, c := range map[string]*call{
		"in time":          {takes: time.Second, panics: "oops"},
		"soon after ctx":   {takes: time.Minute + Abort/2, panics: "oops"},
		"with an error":    {takes: time.Second, panics: errDriver},
		"of the runtime's": {takes: time.Second, panics: &runtime.TypeAssertionError{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if v := recover(); v != c.panics {
					t.Errorf("%s: the call panics with %v", name, v)
				}
				c.came(t, 0, 0)
			}()
			n, took, err := c.run(t, time.Minute)
			t.Errorf("%s: returned %d, %v after %v", name, n, err, took)
		})
	}
}

// Nobody is left to panic to, and there is no answer.
func TestPanicAfterTheCallHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &call{takes: time.Hour, panics: "oops"}
		if _, _, err := c.run(t, time.Minute); err != ErrNoAnswer {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		c.came(t, 1, 0)
	})
}

// A test of the user's may call FailNow in a driver. The call must not wait for an answer that
// never comes.
func TestGoexitInTheDriverIsAPanicOfTheCall(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	defer func() {
		if v := recover(); v != errGoexit {
			t.Errorf("panic: %v", v)
		}
	}()
	_, err := Call(ctx, func(context.Context) (int, error) { runtime.Goexit(); return 7, nil }, nil, nil)
	t.Errorf("returned %v", err)
}

func TestCallWithACtxThatNeverEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n, err := Call(context.WithoutCancel(t.Context()), func(ctx context.Context) (int, error) {
			time.Sleep(time.Hour)
			if ctx.Done() != nil {
				return 0, fmt.Errorf("ctx can end")
			}
			return 7, errDriver
		}, nil, nil)
		if n != 7 || err != errDriver || time.Since(start) != time.Hour {
			t.Errorf("%d, %v after %v", n, err, time.Since(start))
		}
	})
}
