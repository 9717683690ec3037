package xact

import (
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A BeginOption is an option of [Do] and [TryDo], which begin their transaction. Every
// [advisory.TxOption] is one.
type BeginOption interface{ ApplyBegin(*option.Call) }

// TxOptions makes [Do] and [TryDo] begin the transaction with o.
func TxOptions(o *sql.TxOptions) BeginOption { return txOptions{o} }

type txOptions struct{ o *sql.TxOptions }

func (t txOptions) ApplyBegin(c *option.Call) { c.TxOptions = t.o }

// AnyIsolation accepts that, under REPEATABLE READ and SERIALIZABLE, the transaction may not see
// what the last holder of the lock committed. Without it such calls fail with
// [advisory.ErrStaleSnapshot].
func AnyIsolation() advisory.TxOption { return anyIsolation{} }

type anyIsolation struct{}

func (anyIsolation) ApplyTx(c *option.Call)    { c.AnyIsolation = true }
func (anyIsolation) ApplyBegin(c *option.Call) { c.AnyIsolation = true }

func readBegin(opts []BeginOption) (settings.Call, error) {
	return settings.Read(BeginOption.ApplyBegin, opts)
}
