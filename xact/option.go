package xact

import (
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// TxOptions has [Do] and [TryDo] begin the transaction with o.
func TxOptions(o *sql.TxOptions) advisory.TxOption { return txOptions{o} }

type txOptions struct{ o *sql.TxOptions }

func (t txOptions) ApplyTx(s *advisory.Settings) { s.TxOptions = t.o }

// AnyIsolation accepts that under REPEATABLE READ and SERIALIZABLE the transaction may
// not see what the last holder of the lock committed.
func AnyIsolation() advisory.TxOption { return anyIsolation{} }

type anyIsolation struct{}

func (anyIsolation) ApplyTx(s *advisory.Settings) { s.AnyIsolation = true }
