package pooler

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

const usePostgreSQL = "use PostgreSQL, or a version of this server that has it"

// otherServer reports whether the server is not PostgreSQL.
func otherServer(ctx context.Context, exec Exec) (bool, error) {
	rows, err := exec(ctx, lockfn.OnOtherServer)
	return rows == 1, err
}

// Refusal returns err, or an [*advisory.UnsafeServerError] if the server lacks what the failed
// statement uses.
func Refusal(err error) error {
	if !lockfn.Lacking(err) {
		return err
	}
	return unsafe(advisory.NotPostgreSQL, "the server lacks what locks need (%v): %s", err, usePostgreSQL)
}

// ProbeLinks is [Probe]. If the server lacks what it uses, keys may stay on a and b, which are in
// doubt then.
func ProbeLinks(ctx context.Context, a, b *Link) (sighted bool, err error) {
	sighted, err = Probe(ctx, a.Exec, b.Exec)
	if errors.Is(err, advisory.ErrUnsafeServer) && Leaves(err) {
		a.doubt, b.doubt = true, true
	}
	return sighted, err
}

// Leaves reports whether keys may stay on the connections of a [Probe] that failed with err.
func Leaves(err error) bool {
	unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
	return err != nil && (!ok || unsafe.Reason == advisory.NotPostgreSQL)
}

// Excludes reports whether f refuses, on b, a key that a holds at the same level. A function that the
// server lacks excludes nobody. Both connections must be idle. They hold nothing afterwards, or are in
// doubt.
func Excludes(ctx context.Context, a, b *Link, f lockfn.TryFunction) (bool, error) {
	hold, key := f.Exclusive(), f.Key(binary.LittleEndian.Uint64(random()))
	if f.Xact {
		if _, err := a.Exec(ctx, "BEGIN"); err != nil {
			return false, err
		}
		defer a.end(ctx, "ROLLBACK")
	}
	taken, err := a.Exec(ctx, hold.Try(key))
	if err != nil || taken != 1 {
		return false, unlessLacking(err)
	}
	if !f.Xact {
		defer a.end(ctx, hold.Unlock(key))
	}
	granted, err := b.Exec(ctx, f.Try(key))
	if err != nil {
		return false, unlessLacking(err)
	}
	if granted == 1 && !f.Xact {
		b.end(ctx, f.Unlock(key))
	}
	return granted == 0, nil
}

// end ends a trial by a statement, even if ctx has ended. If it fails, l is in doubt.
func (l *Link) end(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound.Grace)
	defer cancel()
	if _, err := l.Exec(ctx, text); err != nil {
		l.doubt = true
	}
}

// unlessLacking returns err, or nil if the server lacks what the statement uses.
func unlessLacking(err error) error {
	if lockfn.Lacking(err) {
		return nil
	}
	return err
}
