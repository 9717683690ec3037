package adapt_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

var nightly = advisory.Name("billing", "nightly")

func TestCronReportsErrorsAndNoSkips(t *testing.T) {
	closed := locktest.New()
	closed.Close()
	busy := locktest.New()
	busy.Occupy(nightly)
	losing := locktest.New()
	for name, v := range map[string]struct {
		l    *locktest.Locker
		key  advisory.Key
		runs int
		want error
	}{
		"a free key":      {locktest.New(), nightly, 1, nil},
		"a busy key":      {busy, nightly, 0, nil},
		"a closed Locker": {closed, nightly, 0, advisory.ErrClosed},
		"the zero Key":    {locktest.New(), advisory.Name("billing", ""), 0, advisory.ErrInvalidKey},
		"a lost lock":     {losing, nightly, 1, advisory.ErrLost},
	} {
		var errs []error
		runs := 0
		adapt.Cron[cronJob](v.l, v.key, func(err error) { errs = append(errs, err) })(cronFunc(func() {
			runs++
			if v.l == losing {
				v.l.Lose(nightly)
			}
		})).Run()
		if runs != v.runs {
			t.Errorf("%s: %d runs, want %d", name, runs, v.runs)
		}
		if v.want == nil && len(errs) != 0 || v.want != nil && (len(errs) != 1 || !errors.Is(errs[0], v.want)) {
			t.Errorf("%s: errors %v, want %v", name, errs, v.want)
		}
	}
}

func TestCronLogsErrorsThatNobodyTakes(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	l := locktest.New()
	job := adapt.Cron[cronJob](l, nightly, nil)(cronFunc(func() {}))
	release := l.Occupy(nightly)
	job.Run()
	release()
	if log.Len() != 0 {
		t.Errorf("a skip logs %s", &log)
	}
	l.Close()
	job.Run()
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "the Locker is closed") {
		t.Errorf("an error logs %q", got)
	}
}

func TestCronPanicGoesOnAfterTheRelease(t *testing.T) {
	l := locktest.New()
	job := adapt.Cron[cronJob](l, nightly, func(err error) { t.Error(err) })(cronFunc(func() { panic("of the job") }))
	if with := panics(job.Run); with != "of the job" {
		t.Errorf("Run panics with %v", with)
	}
	if l.Holds(nightly) {
		t.Error("the lock is held after the panic")
	}
}

func TestCronSkipsARunWhileTheLastGoesOn(t *testing.T) {
	l, runs := locktest.New(), 0
	var job cronJob
	job = adapt.Cron[cronJob](l, nightly, func(err error) { t.Error(err) })(cronFunc(func() {
		runs++
		job.Run()
	}))
	job.Run()
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

func TestWrapEndsTheJobsContextWithTheLock(t *testing.T) {
	l := locktest.New()
	err := adapt.Wrap(l, nightly, func(ctx context.Context) error {
		l.Lose(nightly)
		<-ctx.Done()
		return nil
	})(t.Context())
	if !errors.Is(err, advisory.ErrLost) {
		t.Error(err)
	}
}

func TestWrapOfNoFunction(t *testing.T) {
	if err := adapt.Wrap(locktest.New(), nightly, nil)(t.Context()); err == nil {
		t.Error("no error")
	}
}
