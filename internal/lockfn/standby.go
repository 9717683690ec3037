package lockfn

import "github.com/pgadvisory/pgadvisory/advisory"

// inRecovery is true on a hot standby, whose locks do not exclude those on the primary. Each
// statement that may be the first of a call checks it first, in a CASE. PostgreSQL does not
// evaluate a branch before its condition. It does not evaluate volatile functions, as all lock
// functions are, when it plans.
const inRecovery = "pg_catalog.pg_is_in_recovery()"

// InRecovery returns a row on a hot standby.
const InRecovery = answer + "WHERE " + inRecovery

// ErrStandby is the error of a try that was not made, because the server is in recovery.
var ErrStandby error = &advisory.UnsafeServerError{Reason: advisory.Standby, Detail: "pg_is_in_recovery() is true: connect to the primary"}
