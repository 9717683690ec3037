// Package advisoryotel makes OpenTelemetry metrics and spans of locks.
//
// [New] returns an Observer for [advisory.WithObserver]. [Observer.RegisterStats] adds the numbers of
// the moment of a Locker. The package uses OpenTelemetry's API alone: the program chooses the SDK and
// the exporters.
//
// # Metrics
//
// The names follow OpenTelemetry's rule for metrics of one database system: each begins with
// postgresql.client.advisory_lock. The first five come from events, the others from RegisterStats.
//
//	name                     instrument     unit          counts or measures
//	attempts                 counter        {attempt}     calls that ended, with or without the lock
//	wait.duration            histogram      s             from the call until it ended
//	hold.duration            histogram      s             from the lock until its release or loss
//	losses                   counter        {lock}        locks that ended with their session
//	unconfirmed              counter        {event}       times at which no standby confirmed the primary
//	hold.count               updowncounter  {lock}        locks that the Locker holds on the server
//	holder.count             updowncounter  {holder}      callers that have a lock
//	waiter.count             updowncounter  {waiter}      callers that wait
//	session.count            updowncounter  {connection}  connections in use
//	session.last_answer.age  gauge          s             since the last answer of the session that is silent the longest
//
// What the metrics do not show:
//
//   - hold.duration lacks an unlock that does not know when the lock was acquired, such as
//     sqlconn.Unlock. It also lacks locks that end with the caller's own transaction.
//   - losses does not have the cause, which is error.type of hold.duration. It is 0 from the first
//     lock on, so that the first loss is an increase.
//   - unconfirmed counts [advisory.Unconfirmed], of a Locker with locker.WithStandby. It is absent
//     before the first one. It has no label and no mode.
//   - waiter.count lacks waits on a connection and in a transaction. Their events come at their end.
//   - session.last_answer.age is absent for a Locker without a session, as after a loss. It is up to
//     8 s higher for a session that holds locks and waits, or has just waited.
//
// # Spans
//
// A call that ended makes the span "advisory_lock.acquire", of kind client. A lock that was released
// or lost makes the span "advisory_lock.hold", of kind internal, if the event has its duration. Both
// names end with the label if there is one. Both spans are children of the span in the ctx of the
// call. They are made at their end, with the time at which the call or the hold began. So spans of
// the work are their siblings.
//
// # Attributes
//
//	db.system.name                      postgresql
//	postgresql.advisory_lock.label      of advisory.Label; absent without one
//	postgresql.advisory_lock.mode       exclusive, shared
//	postgresql.advisory_lock.outcome    of a call: acquired, not_acquired, error; of a hold: released, lost
//	error.type                          of an outcome error or lost, of a release that failed, and of unconfirmed
//	postgresql.advisory_lock.key        with WithKeysInMetrics, WithKeysInSpans
//
// Only spans have these:
//
//	db.operation.name                   advisory_lock.acquire
//	db.response.status_code             the SQLSTATE, if the server sent one
//	postgresql.advisory_lock.local      true if the lock was handed over inside the process
//	postgresql.backend.pid              of the server process, if known
//
// The outcome not_acquired is a try that returned false, or a wait that [advisory.MaxWait] ended. It
// is no error. The values of error.type are:
//
//   - canceled, timeout: the end of ctx
//   - deadlock, lock_table_full, unsafe_server, stale_snapshot, already_held
//   - a SQLSTATE, such as 57P01
//   - lost, closed, not_held, unconfirmed
//   - the Go type of the error otherwise
//
// # Cost and faults
//
// Observe runs inside the call that it reports. The SDK's meters do not wait for an exporter, nor
// does a span processor of WithBatcher: an exporter that is down or slow delays no lock. A processor
// of WithSyncer does wait for its exporter, and the call waits with it.
//
// A panic of a provider does not reach the caller: Observe passes it to otel.Handle.
package advisoryotel
