package lockfn

import "strings"

// literal returns s as a literal of SQL that means the same whatever standard_conforming_strings
// and backslash_quote are, as quote_literal of the server does. s is valid UTF-8 without a NUL
// byte.
func literal(s string) string {
	if !strings.Contains(s, `\`) {
		return "'" + escape.Replace(s) + "'"
	}
	return "E'" + escape.Replace(s) + "'"
}

var escape = strings.NewReplacer(`\`, `\\`, `'`, `''`)
