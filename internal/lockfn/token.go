package lockfn

import (
	"errors"
	"fmt"
	"strconv"
)

// Timeline is the timeline of a primary: eight hexadecimal digits. It is an error on a standby.
//
// A server has one timeline from its start, or its promotion, to its end. The position in the
// write-ahead log only names the file: the digits do not depend on it.
const Timeline = "pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)"

// Token draws a fencing token, for [ReadToken]: the timeline and a transaction id. The message gives
// the transaction something to flush. It needs PostgreSQL 13: see [OldestForTokens].
//
// They are text, because a token may not fit into an int8.
const Token = "CASE WHEN pg_catalog.pg_logical_emit_message(true, 'pgadvisory', '') IS NOT NULL THEN pg_catalog.concat(" +
	Timeline + ", pg_catalog.pg_current_xact_id()) END"

// OldestForTokens is the server_version_num of the oldest server that draws tokens.
const OldestForTokens = 130000

const (
	timelineDigits = 8
	xidBits        = 48
	// MostTimelines is the greatest sum of timeline and epoch that a token has room for.
	MostTimelines = 1<<(64-xidBits) - 1
)

// ErrNoToken: the server has none that is greater than those before it. Another try does not help.
var ErrNoToken = errors.New("there is no fencing token")

// ReadToken returns the token of an answer of [Token], or 0 for an empty one: the sum of timeline and
// epoch, above the transaction id. Its errors have an SQLSTATE, numeric_value_out_of_range: to callers
// the statement failed and the link works.
func ReadToken(answer string, epoch int) (uint64, error) {
	if answer == "" {
		return 0, nil
	}
	digits := min(len(answer), timelineDigits)
	t, err := ReadTimeline(answer[:digits])
	if err == nil {
		err = TokenFits(t, epoch)
	}
	if err != nil {
		return 0, outOfRange{err}
	}
	xid, err := strconv.ParseUint(answer[digits:], 10, 64)
	if err != nil {
		return 0, outOfRange{fmt.Errorf("%w: the server answered %q: %w", ErrNoToken, answer, err)}
	}
	if xid >= 1<<xidBits {
		return 0, outOfRange{fmt.Errorf("%w: the transaction id %d is past 2^%d", ErrNoToken, xid, xidBits)}
	}
	return (uint64(t)+uint64(epoch))<<xidBits | xid, nil
}

type outOfRange struct{ error }

func (outOfRange) SQLState() string { return "22003" }

func (e outOfRange) Unwrap() error { return e.error }

// ReadTimeline reads an answer of [Timeline].
func ReadTimeline(answer string) (uint32, error) {
	t, err := strconv.ParseUint(answer, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: the server's timeline is %q: %w", ErrNoToken, answer, err)
	}
	return uint32(t), nil
}

// TokenFits returns an error if there are no tokens on the timeline with this epoch.
func TokenFits(timeline uint32, epoch int) error {
	if sum := uint64(timeline) + uint64(epoch); sum > MostTimelines {
		return fmt.Errorf("%w: timeline %d and WithTokenEpoch(%d) add up to %d, and at most %d fits", ErrNoToken, timeline, epoch, sum, MostTimelines)
	}
	return nil
}
