package pooler

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Exec sends a statement and returns its row count.
type Exec func(ctx context.Context, text string) (rows int64, err error)

// turns is the order in which the connections check the marks: true is the second connection.
//
// A proxy that uses the last used session shares one at the second check. A proxy that uses its
// sessions in turn changes them at the third, because the same connection checks twice. The other
// turns are for proxies that are busy with other clients.
var turns = []bool{false, true, true, false, false, true}

// keyTries are how often a held key is tried, in two rounds, for proxies on servers that do not show
// what sessions do. A proxy that takes six sessions in turn would release the key of the first round
// where it took it; no number of sessions does that in both.
var keyTries = []int{5, 3}

// Probe checks whether locks exclude between two connections, which must be idle. If they do not,
// the error is an [*advisory.UnsafeServerError]; any other error means that there is no result.
// sighted reports whether the activity of sessions was visible. If not, Probe only tried locks,
// which detects fewer busy proxies.
//
// On a server that is not PostgreSQL, functions at transaction level may be missing or grant what they
// like: the callers of Probe use those at session level. See [Excludes] for each alone.
//
// Probe leaves nothing on either connection. Exception: in the second part, behind a proxy that the
// first part did not detect, locks on random keys may stay on a session of the proxy.
func Probe(ctx context.Context, a, b Exec) (sighted bool, err error) {
	sighted, err = checkMarks(ctx, a, b)
	if err != nil {
		return sighted, err
	}
	rounds := []int{1}
	if !sighted {
		rounds = keyTries
	}
	for _, tries := range rounds {
		if err := tryKeys(ctx, a, b, tries); err != nil {
			return sighted, err
		}
	}
	return sighted, nil
}

// checkMarks makes each connection leave a mark and count the marks of both. Each mark must be on one
// session. If the other's mark is on none, a statement of this connection or of another client has
// replaced it. If a mark is on two sessions, its connection has changed its session.
func checkMarks(ctx context.Context, a, b Exec) (sighted bool, err error) {
	token := "pgadvisory" + hex.EncodeToString(random())
	for i, second := range turns {
		exec, letter := a, byte('x')
		if second {
			exec, letter = b, 'y'
		}
		rows, err := exec(ctx, lockfn.LeaveMark(token, letter))
		if err != nil {
			return false, unlessRefused(err)
		}
		switch own, other := lockfn.MarksSeen(rows); {
		case own < 1:
			return false, nil
		case own > 1 || other > 1:
			return true, unsafe(advisory.Pooler, "one connection was answered by several sessions")
		case other < 1 && i > 0:
			see, err := seeEachOther(ctx, a, b)
			if err != nil || !see {
				return false, err
			}
			return true, unsafe(advisory.Pooler, "a session is shared between connections")
		}
	}
	return true, nil
}

// seeEachOther reports whether the sessions show each other their activity: they are of one role, and
// on one server.
func seeEachOther(ctx context.Context, a, b Exec) (bool, error) {
	one, err := a(ctx, lockfn.RoleAndServer)
	if err != nil {
		return false, unlessRefused(err)
	}
	two, err := b(ctx, lockfn.RoleAndServer)
	return one == two, unlessRefused(err)
}

// unlessRefused returns err, or nil if the server refused the statement: this role may not see the
// activity of sessions.
func unlessRefused(err error) error {
	if lockfn.Refused(err) {
		return nil
	}
	return err
}

// tryKeys holds random keys on one connection and tries them on the other: in both key spaces, both
// modes, and at session and transaction level.
func tryKeys(ctx context.Context, a, b Exec, tries int) error {
	keys := randomKeys()
	rows, err := a(ctx, lockfn.TakeAll(keys))
	var found int64
	if err == nil && rows == 1 {
		found, err = tryBeside(ctx, b, keys, tries)
		if err == nil && found == lockfn.BesideSame {
			releaseAstray(ctx, a, b, keys)
			return unsafe(advisory.Pooler, "a session is shared between connections: both were granted the same lock")
		}
	}
	released, uerr := release(ctx, a, keys)
	switch fn, _, granted := lockfn.BesideFunction(keys, found); {
	case err != nil:
		return Refusal(err)
	case rows != 1:
		return fmt.Errorf("cannot lock the free key %s for the check", keys.Exclusive[0])
	case uerr != nil: // the session may have ended, and its locks with it, before they were tried
		return Refusal(uerr)
	case granted:
		return unsafe(advisory.NoExclusion, "two connections were granted the same lock, by %s: %s", fn, oneServer)
	case found != lockfn.BesideBusy:
		return unsafe(advisory.NoExclusion, "two connections were granted the same lock: %s", oneServer)
	case released == keys.Count():
		return nil
	}
	releaseAstray(ctx, a, b, keys)
	if other, err := otherServer(ctx, a); err == nil && other {
		return unsafe(advisory.NotPostgreSQL, "pg_locks does not show the locks of a session that holds some, or a pooler shares sessions: %s", usePostgreSQL)
	}
	return unsafe(advisory.Pooler, "a lock was no longer on the session of its connection")
}

const oneServer = "make sure that all connections of the pool lead to one server and one database, and that this is PostgreSQL or implements the function"

// tryBeside tries on b the keys that the other connection holds, several times if they are refused, as
// they must be.
func tryBeside(ctx context.Context, b Exec, keys lockfn.ProbeKeys, tries int) (found int64, err error) {
	text := lockfn.TryBeside(keys)
	for range tries {
		found, err = b(ctx, text)
		_, xact, _ := lockfn.BesideFunction(keys, found)
		if xact && err == nil || lockfn.Lacking(err) {
			other, oerr := otherServer(ctx, b)
			if oerr != nil {
				return 0, oerr
			}
			if other {
				text = lockfn.TryBesideInSession(keys)
				found, err = b(ctx, text)
			}
		}
		if err != nil || found != lockfn.BesideBusy {
			break
		}
	}
	return found, err
}

// astrayTries bounds the search for the session that keys are on.
const astrayTries = 20

// releaseAstray releases keys that may be on another session than their connection's. They harm
// nobody, but take places.
func releaseAstray(ctx context.Context, a, b Exec, keys lockfn.ProbeKeys) {
	for i := range astrayTries {
		exec := a
		if i%2 == 1 {
			exec = b
		}
		if rows, err := release(ctx, exec, keys); err != nil || rows > 0 {
			break
		}
	}
}

// release releases those of the keys that are held, even if ctx has ended.
func release(ctx context.Context, exec Exec, keys lockfn.ProbeKeys) (released int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound.Grace)
	defer cancel()
	return exec(ctx, lockfn.ReleaseAll(keys))
}

func randomKeys() (keys lockfn.ProbeKeys) {
	for _, k := range []*[2]advisory.Key{&keys.Exclusive, &keys.Shared, &keys.Blocking, &keys.BlockingAndShared} {
		n := binary.LittleEndian.Uint64(random())
		k[0] = advisory.Int64(int64(n))
		k[1] = advisory.Pair(int32(n>>32), int32(n))
	}
	return keys
}

func unsafe(reason advisory.UnsafeReason, format string, args ...any) error {
	return &advisory.UnsafeServerError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

func random() []byte {
	b := make([]byte, 8)
	rand.Read(b)
	return b
}
