package locker_test

import (
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
