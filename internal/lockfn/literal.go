package lockfn

import "strings"

// literal returns s as an SQL literal, as quote_literal of the server does. Its meaning does not
// depend on standard_conforming_strings and backslash_quote. s is valid UTF-8 without a NUL byte.
func literal(s string) string {
	if !strings.Contains(s, `\`) {
		return "'" + escape.Replace(s) + "'"
	}
	return "E'" + escape.Replace(s) + "'"
}

var escape = strings.NewReplacer(`\`, `\\`, `'`, `''`)
