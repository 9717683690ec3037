package keys_test

import (
	"database/sql"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// openUTF8 opens a fresh database whose encoding is UTF8.
func openUTF8(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var encoding string
	if err := db.QueryRowContext(t.Context(), "SHOW server_encoding").Scan(&encoding); err != nil {
		t.Fatal(err)
	}
	if encoding != "UTF8" {
		t.Skipf("the server makes databases of encoding %s", encoding)
	}
	return db
}

// randomText returns n bytes of valid UTF-8 without a NUL.
func randomText(random *rand.Rand, n int) string {
	// The first and the last character of each length in bytes.
	bounds := [][2]rune{1: {1, 0x7f}, {0x80, 0x7ff}, {0x800, 0xffff}, {0x10000, 0x10ffff}}
	var b strings.Builder
	for b.Len() < n {
		bound := bounds[1+random.IntN(min(4, n-b.Len()))]
		r := bound[0] + random.Int32N(bound[1]-bound[0]+1)
		if 0xd800 <= r && r <= 0xdfff {
			continue // a surrogate
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestHashTextEqualsTheServers(t *testing.T) {
	db := openUTF8(t)
	source := rand.Uint64()
	t.Logf("random numbers from %d", source)
	random := rand.New(rand.NewPCG(source, 0))
	var texts []string
	var seeds []int64
	for n := range 201 { // bytes
		for range 50 {
			texts = append(texts, randomText(random, n))
			seeds = append(seeds, int64(random.Uint64()))
		}
		seeds[len(seeds)-1] = 0
		seeds[len(seeds)-2] = int64(random.Uint64() << 32) // half of it is zero
		seeds[len(seeds)-3] = int64(random.Uint64() >> 32)
	}
	rows, err := db.QueryContext(t.Context(),
		"SELECT hashtext(s)::bigint, hashtextextended(s, seed) FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY u(s, seed, i) ORDER BY i",
		pq.Array(texts), pq.Array(seeds))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	compared := 0
	for ; rows.Next(); compared++ {
		var plain, extended int64
		if err := rows.Scan(&plain, &extended); err != nil {
			t.Fatal(err)
		}
		s, seed := texts[compared], seeds[compared]
		if got := advisory.HashText(s); got != advisory.Int64(plain) {
			t.Fatalf("HashText(%q) = %v, the server's %d", s, got, plain)
		}
		if got := advisory.HashTextExtended(s, seed); got != advisory.Int64(extended) {
			t.Fatalf("HashTextExtended(%q, %d) = %v, the server's %d", s, seed, got, extended)
		}
	}
	if err := rows.Err(); err != nil || compared != len(texts) {
		t.Fatalf("%d of %d texts compared: %v", compared, len(texts), err)
	}
	t.Logf("%d texts compared", compared)
}

// What gives the zero Key is just what the server refuses.
func TestHashTextRefusesWhatTheServerDoes(t *testing.T) {
	db := openUTF8(t)
	for _, s := range []string{
		"a\x00b", "\xff", "caf\xe9", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", // not text
		"", "\x01", "\u0080", "\ud7ff", "\ue000", "\ufffe", "\uffff", "\ufffd", "\U0010ffff", // text
	} {
		var n int64
		err := db.QueryRowContext(t.Context(), "SELECT hashtext($1)::bigint", s).Scan(&n)
		switch k := advisory.HashText(s); {
		case err != nil && !k.IsZero():
			t.Errorf("HashText(%q) = %v, the server: %v", s, k, err)
		case err == nil && k != advisory.Int64(n):
			t.Errorf("HashText(%q) = %v, the server's %d", s, k, n)
		}
	}
}
