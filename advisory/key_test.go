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
	"testing/quick"
	"unsafe"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func quoted(s string) string { return strconv.Quote(s) }

// eachKey calls check on keys of both spaces: the odd ones, and random ones.
func eachKey(t *testing.T, check func(k advisory.Key)) {
	for _, n := range []int64{0, 1, -1, 4820, 1 << 32, -1 << 32, math.MinInt32, math.MinInt64, math.MaxInt64} {
		check(advisory.Int64(n))
		check(advisory.Pair(int32(n>>32), int32(n)))
	}
	if err := quick.Check(func(n int64, class, object int32) bool {
		check(advisory.Int64(n))
		check(advisory.Pair(class, object))
		return true
	}, nil); err != nil {
		t.Error(err)
	}
}

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
	eachKey(t, func(k advisory.Key) {
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
	})
}

func TestKeyIsInOneSpace(t *testing.T) {
	eachKey(t, func(k advisory.Key) {
		n, isInt64 := k.Int64()
		class, object, isPair := k.Pair()
		switch {
		case k.IsZero():
			t.Errorf("%v is the zero Key", k)
		case isInt64 == isPair:
			t.Errorf("%v: Int64() says %v, Pair() says %v", k, isInt64, isPair)
		case isInt64 && (advisory.Int64(n) != k || class != 0 || object != 0):
			t.Errorf("%v: Int64() = %d, Pair() = %d, %d", k, n, class, object)
		case isPair && (advisory.Pair(class, object) != k || n != 0):
			t.Errorf("%v: Int64() = %d, Pair() = %d, %d", k, n, class, object)
		}
	})
}

func TestKeySpacesNeverMeet(t *testing.T) {
	if err := quick.Check(func(class, object int32) bool {
		return advisory.Pair(class, object) != advisory.Int64(int64(class)<<32|int64(uint32(object)))
	}, nil); err != nil {
		t.Error(err)
	}
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
