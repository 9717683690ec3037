package wait

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A recorder keeps the duration in each Waiting event.
type recorder struct {
	t      *testing.T
	waited []time.Duration
}

func (r *recorder) Observe(_ context.Context, e advisory.Event) {
	want := advisory.Event{Kind: advisory.Waiting, Key: advisory.Int64(4820), Mode: advisory.Shared, Label: "account", Waited: e.Waited}
	if !reflect.DeepEqual(e, want) {
		r.t.Errorf("%+v, want %+v", e, want)
	}
	r.waited = append(r.waited, e.Waited)
}

func (r *recorder) are(seconds ...int) {
	r.t.Helper()
	var want []time.Duration
	for _, s := range seconds {
		want = append(want, time.Duration(s)*time.Second)
	}
	if !slices.Equal(r.waited, want) {
		r.t.Errorf("reported after %v, want %v", r.waited, want)
	}
}

var ofCall = settings.Call{Mode: advisory.Shared, Plain: option.Plain{Label: "account"}}

func TestLongWaitIsToldEachTimeThatItHasDoubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		stop := Long(t.Context(), r, advisory.Int64(4820), ofCall, time.Now(), nil)
		time.Sleep(79 * time.Second)
		stop()
		time.Sleep(time.Hour)
		r.are(5, 10, 20, 40)
	})
}

func TestLongWaitCountsFromTheBeginningOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		start := time.Now()
		time.Sleep(3 * time.Second)
		stop := Long(t.Context(), r, advisory.Int64(4820), ofCall, start, nil)
		time.Sleep(2*time.Second + time.Millisecond)
		stop()
		r.are(5)
	})
}

func TestShortWaitIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		for range 100 {
			stop := Long(t.Context(), r, advisory.Int64(4820), ofCall, time.Now(), nil)
			time.Sleep(longWait - time.Millisecond)
			stop()
			stop()
		}
		r.are()
	})
}

// An observer that is running delays the end of the wait, so that it gets no event of
// it afterwards.
func TestLongWaitIsNotToldAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported, resume := make(chan struct{}), make(chan struct{})
		stop := Long(t.Context(), observerFunc(func() { close(reported); <-resume }), advisory.Int64(4820), ofCall, time.Now(), nil)
		<-reported
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(time.Second)
		select {
		case <-stopped:
			t.Error("the wait has ended during its event")
		default:
		}
		close(resume)
		<-stopped
		time.Sleep(time.Hour)
	})
}

type observerFunc func()

func (f observerFunc) Observe(context.Context, advisory.Event) { f() }

func TestLongWaitWithoutAnObserver(t *testing.T) {
	Long(t.Context(), nil, advisory.Int64(4820), ofCall, time.Now(), nil)()
}

func TestLongWaitAfterATimeOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		soon := ofCall
		soon.WaitingAfter = 2 * time.Second
		stop := Long(t.Context(), r, advisory.Int64(4820), soon, time.Now(), nil)
		time.Sleep(17 * time.Second)
		stop()
		r.are(2, 4, 8, 16)
	})
}

// seen is an Observer that keeps the events.
type seen []advisory.Event

func (s *seen) Observe(_ context.Context, e advisory.Event) { *s = append(*s, e) }

func TestLongWaitNamesTheHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seen
		var asked atomic.Int32
		stop := Long(t.Context(), &s, advisory.Int64(4820), ofCall, time.Now(), func(context.Context) []advisory.Holder {
			return []advisory.Holder{{PID: int(asked.Add(1))}}
		})
		time.Sleep(longWait - 1)
		synctest.Wait()
		if asked.Load() != 0 {
			t.Error("it asked before the time had come")
		}
		time.Sleep(longWait + 1)
		synctest.Wait()
		stop()
		if len(s) != 2 || asked.Load() != 2 || s[0].Holders[0].PID != 1 || s[1].Holders[0].PID != 2 {
			t.Errorf("asked %d times: %+v", asked.Load(), s)
		}
	})
}

// The server may be slow to say who holds the key. The wait has its lock meanwhile.
func TestLongWaitThatAsksDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seen
		asking, ended := make(chan struct{}), make(chan struct{})
		stop := Long(t.Context(), &s, advisory.Int64(4820), ofCall, time.Now(), func(ctx context.Context) []advisory.Holder {
			close(asking)
			<-ctx.Done()
			close(ended)
			return nil
		})
		<-asking
		start := time.Now()
		stop()
		if d := time.Since(start); d != 0 {
			t.Errorf("stop waited for %v", d)
		}
		<-ended // it is asked no longer
		time.Sleep(time.Hour)
		if len(s) != 0 {
			t.Errorf("after the end of the wait: %+v", s)
		}
	})
}
