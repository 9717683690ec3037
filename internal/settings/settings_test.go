package settings_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

type nobody struct{ name string }

func (nobody) Observe(context.Context, advisory.Event) {}

// read reads opts as each kind of call does, and shows that they agree.
func read(t *testing.T, opts ...advisory.CallOption) (settings.Call, error) {
	t.Helper()
	var conn []advisory.ConnOption
	var tx []advisory.TxOption
	var locker []advisory.LockerOption
	for _, o := range opts {
		conn, tx, locker = append(conn, o), append(tx, o), append(locker, o)
	}
	c, cErr := settings.Conn(conn)
	x, xErr := settings.Tx(tx)
	l, lErr := settings.Locker(locker)
	if !reflect.DeepEqual(c, x) || !reflect.DeepEqual(c, l) || !reflect.DeepEqual(cErr, xErr) || !reflect.DeepEqual(cErr, lErr) {
		t.Errorf("on a connection %+v, %v; in a transaction %+v, %v; of a Locker %+v, %v", c, cErr, x, xErr, l, lErr)
	}
	return c, cErr
}

// mode is a Mode that fits a semaphore too, so that it can be read like the rest.
type mode struct{ advisory.Mode }

func (mode) ApplySemaphore(*option.Call) {}

func TestSettings(t *testing.T) {
	second, none := time.Second, time.Duration(0)
	first, last := nobody{"first"}, nobody{"last"}
	for _, v := range []struct {
		name string
		opts []advisory.CallOption
		want settings.Call
	}{
		{"none", nil, settings.Call{}},
		{"shared", []advisory.CallOption{mode{advisory.Shared}}, settings.Call{Mode: advisory.Shared}},
		{"one try", []advisory.CallOption{advisory.MaxWait(0)}, settings.Call{Plain: option.Plain{MaxWait: &none}}},
		{"all", []advisory.CallOption{
			mode{advisory.Shared}, advisory.MaxWait(time.Second), advisory.Label("account"), advisory.WithObserver(first),
		}, settings.Call{Mode: advisory.Shared, Observer: first, Plain: option.Plain{MaxWait: &second, Label: "account"}}},
		{"the last counts", []advisory.CallOption{
			mode{advisory.Shared},
			advisory.MaxWait(time.Hour), advisory.Label("a"), advisory.WithObserver(first),
			mode{advisory.Exclusive},
			advisory.MaxWait(time.Second), advisory.Label("b"), advisory.WithObserver(last),
		}, settings.Call{Observer: last, Plain: option.Plain{MaxWait: &second, Label: "b"}}},
		{"a nil observer is none", []advisory.CallOption{
			advisory.WithObserver(first), advisory.WithObserver(nil),
		}, settings.Call{Observer: first}},
	} {
		if got, err := read(t, v.opts...); err != nil || !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s: %+v, %v; want %+v", v.name, got, err, v.want)
		}
	}
}

func TestOptionsAreIndependentOfEachOther(t *testing.T) {
	wait := advisory.MaxWait(time.Second)
	a, _ := read(t, wait)
	*a.MaxWait = time.Hour
	if b, _ := read(t, wait); *b.MaxWait != time.Second {
		t.Errorf("the settings of one call changed those of another to %v", *b.MaxWait)
	}
}

type pointerOption struct{ advisory.CallOption }

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, v := range []struct {
		option advisory.CallOption
		want   string
	}{
		{nil, "option 2 of 2 is nil"},
		{(*pointerOption)(nil), "option 2 of 2 is nil"},
		{advisory.MaxWait(-time.Second), "MaxWait(-1s)"},
		{mode{advisory.Mode(7)}, "Mode(7)"},
		{advisory.WithWaitingAfter(-time.Second), "WithWaitingAfter(-1s)"},
		{advisory.HoldersTo(nil), "HoldersTo"},
		{advisory.WithObserver((*nobody)(nil)), "*settings_test.nobody"},
		{holdAtLeast(-time.Second), "HoldAtLeast(-1s)"},
	} {
		if _, err := read(t, advisory.Label("account"), v.option); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v, want %q in it", err, v.want)
		}
	}
}

func holdAtLeast(d time.Duration) advisory.CallOption {
	return option.Set(func(c *option.Call) { c.HoldAtLeast = d })
}

func TestWaitingAfter(t *testing.T) {
	if c, err := read(t, advisory.WithWaitingAfter(time.Second)); err != nil || c.WaitingAfter != time.Second {
		t.Errorf("%+v, %v", c, err)
	}
	var l option.Locker
	advisory.WithWaitingAfter(time.Second).ApplyNew(&l)
	if l.WaitingAfter != time.Second {
		t.Errorf("%+v", l)
	}
}

// What an earlier call has left there is not taken for the answer.
func TestHoldersToIsEmptyAtFirst(t *testing.T) {
	holders := []advisory.Holder{{PID: 812}}
	c, err := read(t, advisory.HoldersTo(&holders))
	if err != nil || c.HoldersTo != &holders || holders != nil {
		t.Errorf("%+v, %v, %v", c, err, holders)
	}
	c.SetHolders([]advisory.Holder{{PID: 813}})
	if len(holders) != 1 || holders[0].PID != 813 {
		t.Errorf("%v", holders)
	}
	settings.Call{}.SetHolders(nil) // nobody asks
}

func TestObserverOfALocker(t *testing.T) {
	var l option.Locker
	advisory.WithObserver(nobody{"it"}).ApplyNew(&l)
	advisory.WithObserver(nil).ApplyNew(&l)
	if l.Observer != (nobody{"it"}) {
		t.Errorf("%+v", l)
	}
}
