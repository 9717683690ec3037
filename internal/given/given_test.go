package given_test

import (
	"database/sql"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/given"
)

type (
	embeds   struct{ *sql.Tx }        // as sqlx.Tx and bun.Tx do
	deeper   struct{ embeds }         // an application's own
	hidden   struct{ conn *sql.Conn } // a field is no wrapper
	circle   struct{ *circle }
	function func()
)

func TestInnerAndIsNil(t *testing.T) {
	tx, conn := &sql.Tx{}, &sql.Conn{}
	itself := &circle{}
	itself.circle = itself
	h := hidden{conn}
	for _, v := range []struct {
		value, inner any
		isNil        bool
	}{
		{nil, nil, true},
		{tx, tx, false},
		{conn, conn, false},
		{(*sql.Conn)(nil), (*sql.Conn)(nil), true},
		{embeds{tx}, tx, false},
		{&embeds{tx}, tx, false},
		{embeds{}, (*sql.Tx)(nil), true},
		{deeper{embeds{tx}}, tx, false},
		{&deeper{}, (*sql.Tx)(nil), true},
		{h, h, false},
		{itself, itself, false},
		{1, 1, false},
	} {
		if got := given.Inner(v.value); got != v.inner {
			t.Errorf("Inner(%T) = %T, want %T", v.value, got, v.inner)
		}
		if got := given.IsNil(v.value); got != v.isNil {
			t.Errorf("IsNil(%T) = %v", v.value, got)
		}
	}
	for _, v := range []any{(*embeds)(nil), function(nil), map[string]int(nil), []int(nil), (chan int)(nil)} {
		if !given.IsNil(v) {
			t.Errorf("IsNil(%T) = false", v)
		}
	}
}
