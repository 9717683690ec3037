package advisoryotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pgadvisory/pgadvisory/locker"
)

// StatsSource is what [Observer.RegisterStats] reads. A *locker.Locker is one.
type StatsSource interface{ Stats() locker.Stats }

var _ StatsSource = (*locker.Locker)(nil)

// RegisterStats adds the numbers of l to the metrics until unregister is called. They are read when
// the metrics are collected, without a round trip. The numbers of a closed Locker are 0. A nil l has no
// effect.
//
// The attributes tell Lockers apart, by db.client.connection.pool.name for example. The numbers of
// Lockers with equal attributes are added up, and the greatest of their ages is reported.
func (o *Observer) RegisterStats(l StatsSource, attrs ...attribute.KeyValue) (unregister func()) {
	if o == nil || l == nil {
		return func() {}
	}
	return o.lockers.add(l, attribute.NewSet(append([]attribute.KeyValue{postgresql}, attrs...)...))
}

// lockers are the Lockers whose numbers are read when the metrics are collected.
type lockers struct {
	holds, holders, waiters, sessions metric.Int64ObservableUpDownCounter
	lastAnswer                        metric.Float64ObservableGauge

	mu         sync.Mutex
	registered map[*registration]struct{}
}

type registration struct {
	source StatsSource
	attrs  attribute.Set
}

// read returns the numbers of the source, unless it panics.
func (r *registration) read() (st locker.Stats, ok bool) {
	defer handlePanic("reading the stats of a Locker")
	return r.source.Stats(), true
}

func newLockers(meter metric.Meter) (*lockers, error) {
	ls := &lockers{registered: map[*registration]struct{}{}}
	var errs [6]error
	count := func(name, unit, description string) (metric.Int64ObservableUpDownCounter, error) {
		return meter.Int64ObservableUpDownCounter(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
	}
	ls.holds, errs[0] = count("hold.count", "{lock}", "Advisory locks that the Locker holds on the server.")
	ls.holders, errs[1] = count("holder.count", "{holder}", "Callers that have an advisory lock; readers of one process share one of the server.")
	ls.waiters, errs[2] = count("waiter.count", "{waiter}", "Callers that wait for an advisory lock.")
	ls.sessions, errs[3] = count("session.count", "{connection}", "Connections that the Locker uses.")
	ls.lastAnswer, errs[4] = meter.Float64ObservableGauge(prefix+"session.last_answer.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the last answer of the server, on the session that is silent the longest."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	_, errs[5] = meter.RegisterCallback(ls.observe, ls.holds, ls.holders, ls.waiters, ls.sessions, ls.lastAnswer)
	return ls, errs[5]
}

func (ls *lockers) add(source StatsSource, attrs attribute.Set) (remove func()) {
	r := &registration{source, attrs}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.registered[r] = struct{}{}
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.registered, r)
	}
}

// all returns what is registered. A source is not asked with the mutex held: it may take its time.
func (ls *lockers) all() (rs []*registration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for r := range ls.registered {
		rs = append(rs, r)
	}
	return rs
}

// observe reports the sums of Lockers with equal attributes: a second value for the same attributes
// would replace the first.
func (ls *lockers) observe(_ context.Context, to metric.Observer) error {
	sums := map[attribute.Distinct]locker.Stats{}
	sets := map[attribute.Distinct]attribute.Set{}
	for _, r := range ls.all() {
		if st, ok := r.read(); ok {
			k := r.attrs.Equivalent()
			sums[k], sets[k] = sum(sums[k], st), r.attrs
		}
	}
	for k, st := range sums {
		with := metric.WithAttributeSet(sets[k])
		to.ObserveInt64(ls.holds, int64(st.Held), with)
		to.ObserveInt64(ls.holders, int64(st.Users), with)
		to.ObserveInt64(ls.waiters, int64(st.Waiting), with)
		to.ObserveInt64(ls.sessions, int64(st.Sessions), with)
		if !st.LastAnswer.IsZero() {
			to.ObserveFloat64(ls.lastAnswer, time.Since(st.LastAnswer).Seconds(), with)
		}
	}
	return nil
}

func sum(a, b locker.Stats) locker.Stats {
	s := locker.Stats{
		Sessions: a.Sessions + b.Sessions, Held: a.Held + b.Held, Users: a.Users + b.Users, Waiting: a.Waiting + b.Waiting,
		LastAnswer: a.LastAnswer,
	}
	if s.LastAnswer.IsZero() || !b.LastAnswer.IsZero() && b.LastAnswer.Before(s.LastAnswer) {
		s.LastAnswer = b.LastAnswer
	}
	return s
}
