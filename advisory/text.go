package advisory

import (
	"fmt"
	"strconv"
)

// String returns a text such as "4820" or "12:34", which [ParseKey] reads back. For the zero Key it
// returns "invalid", which ParseKey refuses. A key does not remember the name or text that it was
// computed from.
func (k Key) String() string { return k.join(":") }

// SQL returns a text such as "4820" or "12, 34", to paste between the parentheses of
// pg_try_advisory_lock and its siblings. PostgreSQL reads it as a key of the same space. For the zero
// Key it returns a text that PostgreSQL refuses.
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

// MarshalText returns the text of [Key.String]. For the zero Key it fails with [ErrInvalidKey]. In
// JSON, omitzero leaves a zero Key out.
func (k Key) MarshalText() ([]byte, error) {
	if k.IsZero() {
		return nil, fmt.Errorf("%w: the zero Key has no text", ErrInvalidKey)
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads every form that [ParseKey] reads. In JSON a key is a string, "4820", since many
// languages round a large number. It fails with [ErrInvalidKey], and then leaves k unchanged.
func (k *Key) UnmarshalText(text []byte) error {
	parsed, err := ParseKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}
