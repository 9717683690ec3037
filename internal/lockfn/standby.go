package lockfn

import "github.com/pgadvisory/pgadvisory/advisory"

// inRecovery is true on a hot standby, whose locks the primary knows nothing of. A CASE asks
// it first, in each statement that may be a call's first: PostgreSQL does not evaluate a
// branch before the condition, nor a volatile function, as all lock functions are, when it
// plans.
const inRecovery = "pg_catalog.pg_is_in_recovery()"

// InRecovery answers with a row on a hot standby.
const InRecovery = answer + "WHERE " + inRecovery

// ErrStandby is the error of a try that a statement did not make, for the server is in recovery.
var ErrStandby error = &advisory.UnsafeServerError{Reason: advisory.Standby, Detail: "pg_is_in_recovery() is true: connect to the primary"}
