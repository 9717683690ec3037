package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestEventKindNames(t *testing.T) {
	for k, want := range map[advisory.EventKind]string{
		advisory.Acquired: "acquired", advisory.NotAcquired: "not acquired", advisory.Waiting: "waiting",
		advisory.Released: "released", advisory.Lost: "lost",
		advisory.SessionOpened: "session opened", advisory.SessionClosed: "session closed",
		advisory.Unconfirmed: "unconfirmed", advisory.Confirmed: "confirmed",
		0: "EventKind(0)", 99: "EventKind(99)",
	} {
		if got := k.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// logger writes every level, without the time.
func logger(out *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func TestSlogObserver(t *testing.T) {
	for _, v := range []struct {
		event advisory.Event
		want  string
	}{
		{
			advisory.Event{Kind: advisory.Acquired, Key: advisory.Int64(4820), Label: "account", Waited: 2 * time.Second, PID: 812},
			`level=DEBUG msg="advisory lock acquired" key=4820 mode=exclusive label=account waited=2s pid=812`,
		},
		{
			advisory.Event{Kind: advisory.Acquired, Key: advisory.Pair(12, 34), Mode: advisory.Shared, Local: true},
			`level=DEBUG msg="advisory lock acquired" key=12:34 mode=shared waited=0s local=true`,
		},
		{
			advisory.Event{Kind: advisory.NotAcquired, Key: advisory.Int64(0), Waited: time.Second, Err: context.Canceled},
			`level=DEBUG msg="advisory lock not acquired" key=0 mode=exclusive waited=1s err="context canceled"`,
		},
		{
			advisory.Event{Kind: advisory.Unconfirmed, Left: 7 * time.Second, Err: advisory.ErrUnconfirmed},
			`level=WARN msg="advisory locks: the primary is not confirmed by a standby" left=7s err="pgadvisory: primary not confirmed by a standby"`,
		},
		{
			advisory.Event{Kind: advisory.Unconfirmed, Err: advisory.ErrUnconfirmed},
			`level=WARN msg="advisory locks: the primary is not confirmed by a standby" err="pgadvisory: primary not confirmed by a standby"`,
		},
		{
			advisory.Event{Kind: advisory.Confirmed, Waited: 3 * time.Second},
			`level=INFO msg="advisory locks: the primary is confirmed again" waited=3s`,
		},
		{
			advisory.Event{Kind: advisory.Waiting, Key: advisory.Int64(4820), Waited: time.Minute},
			`level=WARN msg="advisory lock waiting" key=4820 mode=exclusive waited=1m0s`,
		},
		{
			advisory.Event{Kind: advisory.Waiting, Key: advisory.Int64(4820), Waited: time.Minute, Holders: []advisory.Holder{{PID: 812, User: "app"}, {PID: 813}}},
			`level=WARN msg="advisory lock waiting" key=4820 mode=exclusive waited=1m0s holders="pid 812, user app and pid 813"`,
		},
		{
			advisory.Event{Kind: advisory.Released, Key: advisory.Int64(4820), Held: 3 * time.Second},
			`level=DEBUG msg="advisory lock released" key=4820 mode=exclusive held=3s`,
		},
		{
			advisory.Event{Kind: advisory.Released, Key: advisory.Int64(4820)},
			`level=DEBUG msg="advisory lock released" key=4820 mode=exclusive`,
		},
		{
			advisory.Event{Kind: advisory.Lost, Key: advisory.Int64(4820), Held: time.Hour, Err: errors.New("EOF")},
			`level=ERROR msg="advisory lock lost" key=4820 mode=exclusive held=1h0m0s err=EOF`,
		},
		{
			advisory.Event{Kind: advisory.SessionOpened, PID: 812},
			`level=DEBUG msg="advisory lock session opened" pid=812`,
		},
	} {
		var out bytes.Buffer
		advisory.SlogObserver(logger(&out, slog.LevelDebug)).Observe(t.Context(), v.event)
		if got := out.String(); got != v.want+"\n" {
			t.Errorf("got  %swant %s", got, v.want)
		}
	}
}

func TestSlogObserverKeepsToTheLevel(t *testing.T) {
	var out bytes.Buffer
	o := advisory.SlogObserver(logger(&out, slog.LevelInfo))
	o.Observe(t.Context(), advisory.Event{Kind: advisory.Acquired, Key: advisory.Int64(4820)})
	if out.Len() != 0 {
		t.Errorf("%s", &out)
	}
}

func TestSlogObserverWithoutALoggerTakesTheDefaultOfTheMoment(t *testing.T) {
	o := advisory.SlogObserver(nil)
	var out bytes.Buffer
	was := slog.Default()
	slog.SetDefault(logger(&out, slog.LevelDebug))
	defer slog.SetDefault(was)
	o.Observe(t.Context(), advisory.Event{Kind: advisory.Lost, Key: advisory.Int64(4820)})
	if out.Len() == 0 {
		t.Error("nothing was logged")
	}
}
