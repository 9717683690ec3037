package inspect

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

const (
	defaultAfter = 5 * time.Minute
	minAfter     = 2 * time.Second
)

// A SuspectOption is one of [Suspects].
type SuspectOption interface{ apply(*suspectSettings) }

type suspectSettings struct{ after time.Duration }

// After says for how long a session must have been idle, a wait have lasted, or a
// transaction have been prepared, to be suspect: 5 minutes by default, at least
// 2 seconds, for a Locker's session is idle for up to a heartbeat.
func After(d time.Duration) SuspectOption { return after(d) }

type after time.Duration

func (d after) apply(s *suspectSettings) { s.after = time.Duration(d) }

// Suspects lists what looks like an incident among the advisory locks of this database:
// first what most sessions wait for. What is seen is what the server shows; the rest is
// inferred, and [Suspect.Why] says from what. So:
//
//   - A session that has been idle for long and holds locks may be a connection that
//     went back to its pool with them, may belong to a client that has vanished or hangs, or to
//     one that works on something else. SQL cannot tell these apart: whether a client at
//     the other end of an idle TCP connection is still there, only the server's kernel can find
//     out, by keepalives.
//   - A Locker of package sqlconn holds many keys by design. Its sessions ping at each
//     heartbeat, so that they are never idle for as long as a second, and are no suspects;
//     unless its process hangs.
//   - A wait that is made in slices is younger than a slice, so that it is no long wait by
//     itself; but it is among the Waiters.
//
// A role that may not see the state of other roles' sessions gets a suspect [Unseen] for them.
func Suspects(ctx context.Context, db DB, opts ...SuspectOption) ([]Suspect, error) {
	s := suspectSettings{after: defaultAfter}
	if err := settings.Apply(opts, func(o SuspectOption) { o.apply(&s) }); err != nil {
		return nil, fmt.Errorf("pgadvisory: Suspects: %w", err)
	}
	if s.after < minAfter {
		return nil, fmt.Errorf("pgadvisory: Suspects: After(%v): it must be at least %v", s.after, minAfter)
	}
	h, err := look(ctx, db)
	if err != nil {
		return nil, err
	}
	locks, err := Locks(ctx, db)
	if err != nil {
		return nil, err
	}
	return judge(locks, h, s.after), nil
}

// here is where a connection goes.
type here struct {
	Database, Role, Version string
	Recovery                bool
	Now                     time.Time
}

func look(ctx context.Context, db DB) (h here, err error) {
	err = query(ctx, db, lockfn.Here, nil, func(rows *sql.Rows) error {
		return rows.Scan(&h.Database, &h.Role, &h.Version, &h.Recovery, &h.Now)
	})
	if err != nil {
		return h, fmt.Errorf("pgadvisory: ask the server about itself: %w", lockfn.Meaning(err))
	}
	return h, nil
}
