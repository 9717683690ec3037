package advisory_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestModeNames(t *testing.T) {
	var zero advisory.Mode
	if zero != advisory.Exclusive {
		t.Error("the zero Mode is not Exclusive")
	}
	for m, want := range map[advisory.Mode]string{
		advisory.Exclusive: "exclusive", advisory.Shared: "shared", 7: "Mode(7)",
	} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

type nobody struct{ name string }

func (nobody) Observe(context.Context, advisory.Event) {}

// bothSettings reads opts as each kind of call does, and shows that they agree.
func bothSettings(t *testing.T, opts ...advisory.Option) (advisory.Settings, error) {
	t.Helper()
	var session []advisory.SessionOption
	var tx []advisory.TxOption
	for _, o := range opts {
		session, tx = append(session, o), append(tx, o)
	}
	s, sErr := advisory.SessionSettings(session...)
	x, xErr := advisory.TxSettings(tx...)
	if !reflect.DeepEqual(s, x) || !reflect.DeepEqual(sErr, xErr) {
		t.Errorf("in a session %+v, %v; in a transaction %+v, %v", s, sErr, x, xErr)
	}
	return s, sErr
}

func TestSettings(t *testing.T) {
	second, none := time.Second, time.Duration(0)
	first, last := nobody{"first"}, nobody{"last"}
	for _, v := range []struct {
		name string
		opts []advisory.Option
		want advisory.Settings
	}{
		{"none", nil, advisory.Settings{}},
		{"shared", []advisory.Option{advisory.Shared}, advisory.Settings{Mode: advisory.Shared}},
		{"one try", []advisory.Option{advisory.MaxWait(0)}, advisory.Settings{MaxWait: &none}},
		{"all", []advisory.Option{
			advisory.Shared, advisory.MaxWait(time.Second), advisory.Label("account"), advisory.WithObserver(first),
		}, advisory.Settings{Mode: advisory.Shared, MaxWait: &second, Label: "account", Observer: first}},
		{"the last counts", []advisory.Option{
			advisory.Shared, advisory.MaxWait(time.Hour), advisory.Label("a"), advisory.WithObserver(first),
			advisory.Exclusive, advisory.MaxWait(time.Second), advisory.Label("b"), advisory.WithObserver(last),
		}, advisory.Settings{MaxWait: &second, Label: "b", Observer: last}},
		{"a nil observer is none", []advisory.Option{
			advisory.WithObserver(first), advisory.WithObserver(nil),
		}, advisory.Settings{Observer: first}},
	} {
		if got, err := bothSettings(t, v.opts...); err != nil || !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s: %+v, %v; want %+v", v.name, got, err, v.want)
		}
	}
}

func TestOptionsAreIndependentOfEachOther(t *testing.T) {
	option := advisory.MaxWait(time.Second)
	a, _ := bothSettings(t, option)
	*a.MaxWait = time.Hour
	if b, _ := bothSettings(t, option); *b.MaxWait != time.Second {
		t.Errorf("the settings of one call changed those of another to %v", *b.MaxWait)
	}
}

type pointerOption struct{ advisory.Option }

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, v := range []struct {
		option advisory.Option
		want   string
	}{
		{nil, "option 2 of 2 is nil"},
		{(*pointerOption)(nil), "option 2 of 2 is nil"},
		{advisory.MaxWait(-time.Second), "MaxWait(-1s)"},
		{advisory.Mode(7), "Mode(7)"},
		{advisory.WithObserver((*nobody)(nil)), "*advisory_test.nobody"},
		{holdAtLeast(-time.Second), "HoldAtLeast(-1s)"},
	} {
		if _, err := bothSettings(t, advisory.Label("account"), v.option); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v, want %q in it", err, v.want)
		}
	}
}

// holdAtLeast fits a transaction too, so that it can be tested like the rest.
type holdAtLeast time.Duration

func (d holdAtLeast) ApplySession(s *advisory.Settings) { s.HoldAtLeast = time.Duration(d) }
func (d holdAtLeast) ApplyTx(s *advisory.Settings)      { s.HoldAtLeast = time.Duration(d) }

func TestObserverOfALocker(t *testing.T) {
	var s advisory.LockerSettings
	advisory.WithObserver(nobody{"it"}).ApplyLocker(&s)
	advisory.WithObserver(nil).ApplyLocker(&s)
	if s.Observer != (nobody{"it"}) {
		t.Errorf("%+v", s)
	}
}
