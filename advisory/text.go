package advisory

import (
	"fmt"
	"strconv"
)

// String returns "4820" or "12:34"; [ParseKey] reads it back. The zero Key is
// "invalid", which ParseKey refuses. A key does not remember the name or the
// text that it was made of.
func (k Key) String() string { return k.join(":") }

// SQL returns "4820" or "12, 34", to paste between the parentheses of
// pg_try_advisory_lock and its siblings, where PostgreSQL takes it for a key of
// the same space. Of the zero Key it makes what PostgreSQL refuses.
func (k Key) SQL() string { return k.join(", ") }

func (k Key) join(sep string) string {
	if n, ok := k.Int64(); ok {
		return strconv.FormatInt(n, 10)
	}
	if class, object, ok := k.Pair(); ok {
		return strconv.Itoa(int(class)) + sep + strconv.Itoa(int(object))
	}
	return "invalid"
}

// MarshalText returns what [Key.String] does, and for the zero Key
// [ErrInvalidKey]: in JSON, omitzero leaves it out.
func (k Key) MarshalText() ([]byte, error) {
	if k.IsZero() {
		return nil, fmt.Errorf("%w: the zero Key has no text", ErrInvalidKey)
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads every form that [ParseKey] does. In JSON a key is a
// string, "4820", for a number would lose its last digits in other languages.
// After an error k is as it was.
func (k *Key) UnmarshalText(text []byte) error {
	parsed, err := ParseKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}
