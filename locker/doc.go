// Package locker takes any number of PostgreSQL advisory locks at session level over a handful
// of connections of a pool, often one. The work does not run on the connection that holds the
// lock; its ctx ends when the lock is lost.
//
//	l := locker.New(db)
//	defer l.Close()
//	err := l.Do(ctx, advisory.Name("account", id), func(ctx context.Context) error {
//		return pay(ctx, id)
//	})
//
// # Which call
//
//   - [Locker.Do] and [Locker.Lock] wait for a key, [Locker.TryDo] and [Locker.TryLock] try once.
//   - [Locker.LockAll] takes several keys, [Locker.LockAny] the first of several that is free.
//   - [Locker.Lead] runs a leader, again after a loss. [Locker.Semaphore] lets n in.
//   - [Locker.Wrap] makes a job for a scheduler of a function.
//
// A wait goes on through an outage of the server. It ends with ctx, or after [advisory.MaxWait]: give
// it one of them. Work under a lock uses connections of its own, so the pool needs four more than
// the work. Make one Locker for each pool, and close it.
//
// # How it works
//
// A Locker has a gate for each key that is held or wanted, and a few sessions. Callers queue at
// the gate, first come first served; only the front of the queue talks to the server. One mutex
// guards all of it. A session is a connection with a goroutine that owns it and sends what has
// queued up as one statement. The front session takes keys that are free; the others wait.
//
// # The phases of a gate
//
//	        try                  granted                token, downgrade, unlock
//	idle <--------> asking ---------------------> held <------------------------> changing
//	 ^ |   answered                                |                                 |
//	 | |                                           |  released, or lost              | lost
//	 | |<------------------------------------------+                                 v
//	 | |                                                                     asking, until the
//	 | |  refused, a session may wait                granted                 answer comes
//	 | +-------------------------------> waiting ------------> held
//	 | |  refused, no session may         |  ^
//	 | +-------------> polled ------------|--+ sessions take turns
//	 |                  ^ | every 25 ms   |
//	 |          refused | v               |
//	 |                 polling ----> held |
//	 +------------------------------------+
//	      nobody waits any more
//
// Beside that a probe may be under way: a question for readers' tries while a session waits for
// the key, or while another process waits for the shared lock that is held.
//
// # The phases of a session
//
//	           connected          chosen to wait            slice sent
//	opening -------------> ready ----------------> waiting ------------> slicing
//	   |                   ^  |  ^                  |   ^                   | answered
//	   |                   |  |  +------------------+   | not granted       v
//	   |                   |  |     wait ends           +--------------- settling
//	   |                   |  |                                             |
//	   |                   +--|---------------------------------------------+
//	   |                      |                granted
//	   |                      | idle for ten seconds, or Close
//	   |                      +------------------------------> closed
//	   |
//	   +--- connecting failed; from each phase but closed: an error of the link, a lock
//	        that is gone, or no answer within the deadline ----> lost
//
// A session that is opened in order to wait goes from opening to waiting.
//
// # Failover
//
// t0 is the moment at which the last statement that was answered was sent, H the heartbeat and F
// the failover time.
//
//   - The server frees the lock no earlier than t0 + U, and no later than F after the client
//     vanished: tcp_user_timeout is U = F - H - 1s, in whole seconds.
//   - The client ends the Contexts of its locks at t0 + D on its own clock: D = U - max(1s, U/4).
//   - A slice of a wait takes at most D/2, and never more than 8s: a lock that was granted at its
//     end has half of D left.
//
// By default F = 15s and H = 0.5s, so U = 13s and D = 9.75s.
//
// # Standby
//
// [WithStandby] adds a proof for each server that sessions are on, usually one. A witness, which is a
// connection of its own, has the server commit a beat that the synchronous standbys confirm. a is the
// moment at which the last confirmed beat was sent.
//
//	        confirmed, and the grace is over          no beat confirmed for D
//	sought ---------------------------------> held ------------------------------> ended
//	   |                                        |                                    ^
//	   |  no beat confirmed for D, no witness,  |  its last session has ended        |
//	   |  or no names of standbys               +------------------------------------+
//	   +-----------------------------------------------------------------------------+
//
// A session is ready when the proof of its server is held. When a proof ends, its sessions are lost, with
// their locks: at a + D at the latest. A beat is sent every min(2s, D/4). A server that was promoted
// gives out no lock for D + 1s after its last replayed commit.
//
// The arithmetic is in witness.go.
//
// # What can fail
//
//   - The link fails, or the server ends the session. The session is lost. The Contexts of its
//     locks end with [advisory.ErrLost]. Calls that wait go on with another session; so do tries, on
//     up to four sessions.
//   - The server does not answer within D. The session is lost, and its connection stays open until
//     all work under its locks has returned or F has passed. Closing it earlier would hand the locks
//     over while the work still runs.
//   - An answer comes later than D after its statement was sent, because the process was stopped.
//     The session is lost as if no answer had come.
//   - With [WithStandby], no beat is confirmed for D: the standbys are away, or another server was
//     promoted. All sessions on the server are lost as if it had not answered within D. The witness
//     gives its connection up within two seconds.
//   - With [WithStandbyIfNamed], the names of the standbys become empty. The answer to each beat
//     counts instead of a confirmation, until there are names.
//   - With [WithStandby], the pool has led to a newer timeline. Sessions on the old primary are
//     lost with the next beat.
//   - The witness's connection fails. Another is opened, until D has passed.
//   - A statement fails and the link works. The session compares its list with the server's locks
//     and releases what it does not know. If the server lacks a lock, the session is lost.
//   - Another session answers, which happens behind a pooler. The session is lost and calls fail
//     with [advisory.ErrUnsafeServer].
//   - No connection can be opened. Tries return the error of that attempt. Calls that wait go on.
//     Their keys are tried again after a pause, which grows from 50 ms to 1.5 s and differs from one
//     process to another. All calls share one attempt at a time. [Locker.Lock] lists the faults that
//     end a wait.
//   - A connection that was idle in the pool does not answer within a second. All others that are
//     idle are asked at once, for one second, and then a new one is opened.
//   - All connections are in use. Keys that no session can wait for are tried every 25 ms.
//   - The lock table is half full. Calls that need another lock fail with [advisory.ErrLockTableFull].
//   - The caller's ctx ends. The caller leaves the queue; a lock that is granted later is released.
package locker
