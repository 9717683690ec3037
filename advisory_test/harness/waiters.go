package harness

import (
	"context"

	"github.com/pgadvisory/pgadvisory/xact"
)

// InOwnTx commits. The transaction does not end with any context.
func InOwnTx(p *Pool, fn func(tx xact.Tx) error) error {
	tx, err := p.NewTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
