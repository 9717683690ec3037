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

// A SuspectOption is an option of [Suspects].
type SuspectOption interface{ apply(*suspectSettings) }

type suspectSettings struct{ after time.Duration }

// After sets the age from which a finding is a suspect: of an idle state, of a wait, or of a
// prepared transaction. The default is 5 minutes. The minimum is 2 seconds, because a Locker's
// session is idle for up to a heartbeat.
func After(d time.Duration) SuspectOption { return after(d) }

type after time.Duration

func (d after) apply(s *suspectSettings) { s.after = time.Duration(d) }

// Suspects returns what looks like an incident among the advisory locks of this database, with the
// keys that most sessions wait for first. It sees only what the server shows. The rest is inferred,
// and [Suspect.Why] says from what. Therefore:
//
//   - A session that has been idle for long and holds locks has one of three causes. Its connection
//     went back to a pool with the locks, or its client has vanished or hangs, or its client is
//     working on something else. SQL cannot distinguish these. Only the server's kernel can detect,
//     by keepalives, that the client of an idle TCP connection is gone.
//   - A Locker of package locker holds many keys by design. Its sessions ping at each heartbeat, so
//     they are never idle for a whole second, and are no suspects unless their process hangs.
//   - A wait in slices is never older than a slice, so it is no suspect by itself. It is among the
//     Waiters.
//
// If the role may not see the state of other roles' sessions, the list contains a suspect [Unseen]
// for them. Suspects fails with an error if After is less than 2 seconds, or if a query fails.
func Suspects(ctx context.Context, db DB, opts ...SuspectOption) ([]Suspect, error) {
	s := suspectSettings{after: defaultAfter}
	if err := settings.Apply(opts, func(o SuspectOption) { o.apply(&s) }); err != nil {
		return nil, fmt.Errorf("pgadvisory: Suspects: %w", err)
	}
	if s.after < minAfter {
		return nil, fmt.Errorf("pgadvisory: Suspects: After(%v): use at least %v", s.after, minAfter)
	}
	h, err := readPlace(ctx, db)
	if err != nil {
		return nil, err
	}
	locks, err := Locks(ctx, db)
	if err != nil {
		return nil, err
	}
	return judge(locks, h, s.after), nil
}

// A place is what a connection is connected to.
type place struct {
	Database, Role, Version string
	Recovery                bool
	Now                     time.Time
}

func readPlace(ctx context.Context, db DB) (h place, err error) {
	var now int64
	err = query(ctx, db, lockfn.Here, nil, func(rows *sql.Rows) error {
		return rows.Scan(&h.Database, &h.Role, &h.Version, &h.Recovery, &now)
	})
	h.Now = time.UnixMicro(now)
	if err != nil {
		return h, fmt.Errorf("pgadvisory: read the database, role and version of the connection: %w", lockfn.Meaning(err))
	}
	return h, nil
}
