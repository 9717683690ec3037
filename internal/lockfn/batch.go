package lockfn

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// An Op is the operation of a batch on one key.
type Op byte

const (
	OpTry       Op = iota // take the key in the mode, if it is free
	OpUnlock              // release the key in the mode
	OpDowngrade           // take the key shared in addition to the exclusive hold, then release that
)

// A Request is one line of a batch.
type Request struct {
	Op   Op
	Key  advisory.Key
	Mode advisory.Mode
}

// code encodes the operation, the mode and the key space, for the CASE of the statement.
func (r Request) code() int {
	i := int(r.Op)*4 + int(r.Mode)*2
	if _, _, pair := r.Key.Pair(); pair {
		i++
	}
	return i
}

// Batch answers many requests in one round trip. Prepare it once, on the session with the given
// pid: on another session, behind a pooler, it does nothing. [BatchArgs] returns its parameters.
//
// Its one row has three columns:
//
//   - the pid of the session that answered
//   - a letter t or f for each request, in their order; none on another session
//   - a fencing token for [ReadToken], which is empty if fencing is off or nothing was granted
//
// The transaction id of a token is drawn after the last grant, so it is greater than that of any
// earlier holder of any of the keys. A message in the write-ahead log makes it durable before the
// answer, since the server may assign an id again after a crash if it was only assigned.
//
// The order of the answers is that of the arrays, from which the rows come: nothing sorts them.
// Together with integer codes, that halves the cost of a key.
func Batch(fencing bool, pid int) string {
	token := "''"
	if fencing {
		token = "CASE WHEN a.grants > 0 THEN " + Token + " ELSE '' END"
	}
	var cases strings.Builder
	for _, op := range []Op{OpTry, OpUnlock, OpDowngrade} {
		for _, m := range []advisory.Mode{advisory.Exclusive, advisory.Shared} {
			for _, k := range []advisory.Key{advisory.Int64(0), advisory.Pair(0, 0)} {
				args := "k.n"
				if _, _, pair := k.Pair(); pair {
					args = "(k.n >> 32)::pg_catalog.int4, k.n::pg_catalog.bit(32)::pg_catalog.int4"
				}
				fmt.Fprintf(&cases, " WHEN %d THEN ", Request{op, k, m}.code())
				switch op {
				case OpTry:
					fmt.Fprintf(&cases, "pg_catalog.%s(%s)", tryFn(m), args)
				case OpUnlock:
					fmt.Fprintf(&cases, "pg_catalog.%s(%s)", unlockFn(m), args)
				case OpDowngrade:
					// The blocking form: on 13 to 15 the try form fails if an
					// exclusive waiter is queued. It returns void, never null.
					fmt.Fprintf(&cases, "CASE WHEN pg_catalog.pg_advisory_lock_shared(%[1]s) IS NOT NULL THEN pg_catalog.pg_advisory_unlock(%[1]s) ELSE false END", args)
				}
			}
		}
	}
	return "SELECT pg_catalog.pg_backend_pid(), a.answers, " + token + " FROM (" +
		"SELECT coalesce(pg_catalog.string_agg(CASE WHEN r.ok THEN 't' ELSE 'f' END, ''), '') AS answers, " +
		fmt.Sprintf("pg_catalog.count(*) FILTER (WHERE r.ok AND r.op < %d) AS grants FROM (", Request{Op: OpUnlock}.code()) +
		"SELECT k.op, CASE k.op" + cases.String() + " END AS ok FROM ROWS FROM (" +
		"pg_catalog.unnest($1::pg_catalog.text::pg_catalog.int8[]), pg_catalog.unnest($2::pg_catalog.text::pg_catalog.int2[])) k(n, op) WHERE pg_catalog.pg_backend_pid() = " + strconv.Itoa(pid) + " OFFSET 0) r) a"
}

// BatchArgs returns the parameters of [Batch].
func BatchArgs(rs []Request) (keys, ops string) {
	k, o := make([]byte, 0, 21*len(rs)+2), make([]byte, 0, 3*len(rs)+2)
	k, o = append(k, '{'), append(o, '{')
	for i, r := range rs {
		if i > 0 {
			k, o = append(k, ','), append(o, ',')
		}
		n, _ := packed(r.Key)
		k = strconv.AppendInt(k, n, 10)
		o = strconv.AppendInt(o, int64(r.code()), 10)
	}
	return string(append(k, '}')), string(append(o, '}'))
}

// The answers of [Single].
const (
	SingleNo       = 0
	SingleYes      = 1
	SingleOtherPID = 2 // nothing was done, for this is another session
)

// Single does one request on the session of that pid, in one round trip without anything prepared.
// It is empty for a downgrade, and it draws no token: see [Batch].
func Single(r Request, pid int) string {
	var fn string
	switch r.Op {
	case OpTry:
		fn = tryFn(r.Mode)
	case OpUnlock:
		fn = unlockFn(r.Mode)
	default:
		return ""
	}
	return "SELECT pg_catalog.generate_series(1, CASE WHEN pg_catalog.pg_backend_pid() <> " + strconv.Itoa(pid) +
		fmt.Sprintf(" THEN %d WHEN %s THEN %d ELSE %d END) AS pgadvisory", SingleOtherPID, call(fn, r.Key), SingleYes, SingleNo)
}
