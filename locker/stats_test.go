package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/locker"
)

func TestLastAnswer(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		age := func() time.Duration { return time.Since(l.Stats().LastAnswer) }
		if at := l.Stats().LastAnswer; !at.IsZero() {
			t.Errorf("%v before there is a session", at)
		}
		h := lock(t, l, job)
		time.Sleep(time.Minute)
		if age := age(); age < 0 || age > time.Second {
			t.Errorf("the last of the pings was answered %v ago", age)
		}
		f.fallMute()
		time.Sleep(3 * time.Second)
		if age := age(); age < 3*time.Second || age > 4*time.Second {
			t.Errorf("after three seconds without an answer the age is %v", age)
		}
		<-h.Context().Done()
		if at := l.Stats().LastAnswer; !at.IsZero() {
			t.Errorf("%v after the session was lost", at)
		}
		h.Unlock()
	})
}

// A session that only waits does not answer before its slice ends, which is no sign of trouble.
func TestLastAnswerWhileASessionWaits(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Lock(ctx, job)
			done <- err
		}()
		time.Sleep(time.Second)
		for range 200 {
			if st := l.Stats(); st.Waiting != 1 || st.Sessions != 2 || time.Since(st.LastAnswer) > time.Second {
				t.Errorf("%+v, %v ago", st, time.Since(st.LastAnswer))
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		<-done
	})
}
