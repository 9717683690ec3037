package lockfn

import (
	"database/sql"
	"time"
)

// A timestamp between beginMicros and endMicros is read as microseconds since 1970. lib/pq parses
// the text of a timestamp, and only in DateStyle ISO, which a session may have changed.
const (
	beginMicros = "(extract(epoch FROM "
	endMicros   = ") * 1000000)::pg_catalog.int8"
)

// timeOf returns the time of microseconds, or the zero Time.
func timeOf(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return time.UnixMicro(micros.Int64)
}
