package advisory

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/option"
)

// Mode says how a lock is held. The zero Mode is Exclusive.
//
// A Mode is an [Option]: Lock(ctx, conn, key, advisory.Shared).
type Mode uint8

const (
	// Exclusive excludes every other holder of the key.
	Exclusive Mode = iota
	// Shared excludes exclusive holders only.
	Shared
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ApplyConn makes a Mode a [ConnOption].
func (m Mode) ApplyConn(c *option.Call) { c.Mode = uint8(m) }

// ApplyTx makes a Mode a [TxOption].
func (m Mode) ApplyTx(c *option.Call) { c.Mode = uint8(m) }

// ApplyBegin makes a Mode an xact.BeginOption.
func (m Mode) ApplyBegin(c *option.Call) { c.Mode = uint8(m) }

// ApplyLocker makes a Mode a [LockerOption].
func (m Mode) ApplyLocker(c *option.Call) { c.Mode = uint8(m) }
