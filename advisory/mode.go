package advisory

import "fmt"

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

// ApplySession makes a Mode a [SessionOption].
func (m Mode) ApplySession(s *Settings) { s.Mode = m }

// ApplyTx makes a Mode a [TxOption].
func (m Mode) ApplyTx(s *Settings) { s.Mode = m }
