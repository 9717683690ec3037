package advisory_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func quoted(s string) string { return strconv.Quote(s) }

// keys draws a valid key of either space.
var keys = rapid.OneOf(
	rapid.Map(rapid.Int64(), advisory.Int64),
	rapid.Custom(func(t *rapid.T) advisory.Key {
		return advisory.Pair(rapid.Int32().Draw(t, "class"), rapid.Int32().Draw(t, "object"))
	}),
)

func TestKeyTexts(t *testing.T) {
	for _, v := range []struct {
		key       advisory.Key
		text, sql string
	}{
		{advisory.Int64(4820), "4820", "4820"},
		{advisory.Int64(0), "0", "0"},
		{advisory.Int64(-7), "-7", "-7"},
		{advisory.Int64(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
		{advisory.Pair(12, 34), "12:34", "12, 34"},
		{advisory.Pair(0, 0), "0:0", "0, 0"},
		{advisory.Pair(-1, math.MinInt32), "-1:-2147483648", "-1, -2147483648"},
		{advisory.Key{}, "invalid", "invalid"},
	} {
		if got := v.key.String(); got != v.text {
			t.Errorf("String() = %q, want %q", got, v.text)
		}
		if got := fmt.Sprint(v.key); got != v.text {
			t.Errorf("fmt.Sprint = %q, want %q", got, v.text)
		}
		if got := v.key.SQL(); got != v.sql {
			t.Errorf("%v.SQL() = %q, want %q", v.key, got, v.sql)
		}
	}
}

func TestKeyReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys.Draw(t, "key")
		if got, err := advisory.ParseKey(k.String()); err != nil || got != k {
			t.Errorf("ParseKey(%q) = %v, %v", k, got, err)
		}
		text, err := k.MarshalText()
		if err != nil || string(text) != k.String() {
			t.Errorf("MarshalText() = %q, %v", text, err)
		}
		var u advisory.Key
		if err := u.UnmarshalText(text); err != nil || u != k {
			t.Errorf("UnmarshalText(%q) gives %v, %v", text, u, err)
		}
		if n, ok := k.Int64(); ok && advisory.Int64(n) != k {
			t.Errorf("Int64() of %v = %d", k, n)
		}
		if class, object, ok := k.Pair(); ok && advisory.Pair(class, object) != k {
			t.Errorf("Pair() of %v = %d, %d", k, class, object)
		}
	})
}

func TestKeySpacesNeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		class, object := rapid.Int32().Draw(t, "class"), rapid.Int32().Draw(t, "object")
		pair := advisory.Pair(class, object)
		if n := int64(class)<<32 | int64(uint32(object)); pair == advisory.Int64(n) {
			t.Errorf("Pair(%d, %d) == Int64(%d)", class, object, n)
		}
		if c, o, ok := pair.Pair(); c != class || o != object || !ok {
			t.Errorf("Pair(%d, %d).Pair() = %d, %d, %v", class, object, c, o, ok)
		}
		if n, ok := pair.Int64(); n != 0 || ok {
			t.Errorf("Pair(%d, %d).Int64() = %d, %v", class, object, n, ok)
		}
		n := rapid.Int64().Draw(t, "n")
		if got, ok := advisory.Int64(n).Int64(); got != n || !ok {
			t.Errorf("Int64(%d).Int64() = %d, %v", n, got, ok)
		}
		if c, o, ok := advisory.Int64(n).Pair(); c != 0 || o != 0 || ok {
			t.Errorf("Int64(%d).Pair() = %d, %d, %v", n, c, o, ok)
		}
		if pair.IsZero() || advisory.Int64(n).IsZero() {
			t.Error("a valid key is zero")
		}
	})
}

func TestZeroKey(t *testing.T) {
	var k advisory.Key
	if !k.IsZero() {
		t.Error("the zero Key is not IsZero")
	}
	for _, valid := range []advisory.Key{advisory.Int64(0), advisory.Pair(0, 0)} {
		if valid == k || valid.IsZero() {
			t.Errorf("%v is the zero Key", valid)
		}
	}
	if _, ok := k.Int64(); ok {
		t.Error("the zero Key is in the bigint space")
	}
	if _, _, ok := k.Pair(); ok {
		t.Error("the zero Key is in the pair space")
	}
	if text, err := k.MarshalText(); text != nil || !errors.Is(err, advisory.ErrInvalidKey) {
		t.Errorf("MarshalText() = %q, %v; want ErrInvalidKey", text, err)
	}
}

func TestKeyIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(advisory.Key{}); size > 16 {
		t.Errorf("%d bytes", size)
	}
}

func TestKeyInJSON(t *testing.T) {
	type config struct {
		Lock  advisory.Key            `json:"lock"`
		Other advisory.Key            `json:"other,omitzero"`
		Names map[advisory.Key]string `json:"names,omitempty"`
	}
	in := config{Lock: advisory.Int64(math.MaxInt64), Names: map[advisory.Key]string{advisory.Pair(12, 34): "twelve"}}
	text, err := json.Marshal(in)
	if want := `{"lock":"9223372036854775807","names":{"12:34":"twelve"}}`; err != nil || string(text) != want {
		t.Fatalf("got  %s, %v\nwant %s", text, err, want)
	}
	var out config
	if err := json.Unmarshal(text, &out); err != nil || out.Lock != in.Lock || out.Names[advisory.Pair(12, 34)] != "twelve" {
		t.Errorf("read back: %+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"lock":"name:billing/eu"}`), &out); err != nil || out.Lock != advisory.Name("billing", "eu") {
		t.Errorf("a name: %+v, %v", out, err)
	}
	if _, err := json.Marshal(config{}); !errors.Is(err, advisory.ErrInvalidKey) {
		t.Errorf("the zero Key was marshalled: %v", err)
	}
}

func TestKeyIsAsItWasAfterABadText(t *testing.T) {
	k := advisory.Int64(4820)
	if err := k.UnmarshalText([]byte("12: 34")); !errors.Is(err, advisory.ErrInvalidKey) {
		t.Error(err)
	}
	if k != advisory.Int64(4820) {
		t.Errorf("it is %v now", k)
	}
}

func TestKeyAsACommandLineFlag(t *testing.T) {
	flags := flag.NewFlagSet("job", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var lock, none advisory.Key
	flags.TextVar(&lock, "lock", advisory.Name("billing"), "the `key` to lock")
	flags.TextVar(&none, "none", advisory.Key{}, "no default")
	if err := flags.Parse([]string{"-lock", "12:34"}); err != nil || lock != advisory.Pair(12, 34) || !none.IsZero() {
		t.Errorf("%v, %v, %v", lock, none, err)
	}
	if err := flags.Parse([]string{"-lock", "12,34"}); err == nil {
		t.Error("-lock 12,34 was accepted")
	}
	flags.PrintDefaults()
}
