// Package endsql writes SQL by which an operator ends a holder of locks, or its wait. Sessions
// continue, and the server reuses pids. So each statement has conditions, and has no effect on a
// session that does not meet them.
package endsql

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// OnSession returns SQL that calls function, such as pg_terminate_backend, on the session of pid if it
// meets the conditions. from is what has the columns pid and those of the conditions.
func OnSession(function, from string, pid int, conditions ...string) string {
	return fmt.Sprintf("SELECT pg_catalog.%s(pid) FROM %s WHERE %s;",
		function, from, strings.Join(append([]string{fmt.Sprintf("pid = %d", pid)}, conditions...), " AND "))
}

// At returns the condition that a column has the value t.
func At(column string, t time.Time) string {
	return fmt.Sprintf("%s = '%s+00'", column, t.UTC().Format("2006-01-02 15:04:05.999999"))
}

// RollbackPrepared returns SQL that rolls back the prepared transaction gid.
func RollbackPrepared(gid string) string { return "ROLLBACK PREPARED " + Quote(gid) + ";" }

// Quote returns s as an SQL literal on one line, without control characters.
func Quote(s string) string {
	var b strings.Builder
	plain := true
	for _, r := range s {
		switch {
		case r == '\'':
			b.WriteString("''")
		case r == '\\':
			b.WriteString(`\\`)
			plain = false
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
			plain = false
		default:
			b.WriteRune(r)
		}
	}
	if plain {
		return "'" + b.String() + "'"
	}
	return "E'" + b.String() + "'"
}
