package lockfn

import (
	"slices"
	"strconv"
	"strings"
)

// StandbyNames is a value of synchronous_standby_names. The zero value is that of an empty one, with
// which no commit waits.
type StandbyNames struct {
	Confirm int      // how many standbys must confirm a commit
	Any     bool     // any of the names, not the first of them
	Names   []string // in lower case, without quotes
}

// All reports whether the names match every standby.
func (n StandbyNames) All() bool { return slices.Contains(n.Names, "*") }

// ReadStandbyNames reads a value of synchronous_standby_names, in one of the server's forms:
//
//	[FIRST] n (name, …)
//	ANY n (name, …)
//	name, …              the same as FIRST 1
//
// ok is false for another one. A server does not accept such a value.
func ReadStandbyNames(value string) (n StandbyNames, ok bool) {
	words := nameWords(value)
	if len(words) == 0 {
		return n, true
	}
	n.Confirm = 1
	if i := slices.Index(words, "("); i > 0 && words[len(words)-1] == ")" {
		head := words[:i]
		words = words[i+1 : len(words)-1]
		if len(head) == 2 && (strings.EqualFold(head[0], "any") || strings.EqualFold(head[0], "first")) {
			n.Any = strings.EqualFold(head[0], "any")
			head = head[1:]
		}
		count, err := strconv.Atoi(head[0])
		if len(head) != 1 || err != nil || count < 1 {
			return StandbyNames{}, false
		}
		n.Confirm = count
	}
	for i, w := range words {
		if i%2 == 1 {
			if w != "," {
				return StandbyNames{}, false
			}
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(strings.Trim(w, `"`), `""`, `"`))
		if name == "" || strings.ContainsAny(w, "(),") && w[0] != '"' {
			return StandbyNames{}, false
		}
		n.Names = append(n.Names, name)
	}
	return n, len(words)%2 == 1
}

// nameWords splits a value of synchronous_standby_names into names, with their quotes, and the signs
// between them.
func nameWords(value string) (words []string) {
	word, quoted := "", false
	end := func() {
		if word != "" {
			words = append(words, word)
		}
		word = ""
	}
	for _, r := range value {
		switch {
		case r == '"':
			quoted = !quoted
			word += string(r)
		case quoted:
			word += string(r)
		case r == '(' || r == ')' || r == ',':
			end()
			words = append(words, string(r))
		case strings.ContainsRune(" \t\n\r\f\v", r):
			end()
		default:
			word += string(r)
		}
	}
	end()
	return words
}
