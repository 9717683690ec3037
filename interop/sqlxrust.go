package interop

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// SQLxRust returns the key that PgAdvisoryLock::new(name) of SQLx for Rust makes. Those that
// PgAdvisoryLock::with_key is given are [advisory.Int64] and [advisory.Pair].
func SQLxRust(name string) advisory.Key {
	// This is HKDF without a salt, of which 8 bytes are used. crypto/hkdf would refuse short
	// names in FIPS 140 mode.
	secret := sum(make([]byte, sha256.Size), name)
	out := sum(secret, "SQLx (Rust) Postgres advisory lock\x01")
	return advisory.Int64(int64(binary.LittleEndian.Uint64(out)))
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// SQLxRustMigrate returns the key that the migrations of SQLx for Rust lock in a database.
func SQLxRustMigrate(database string) advisory.Key {
	return advisory.Int64(0x3d32ad9e * int64(crc(database)))
}
