package advisory

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const keyForms = `"4820", "12:34", "name:billing/eu", "hashtext:foo" or "hashtextextended:0:foo"`

// ParseKey reads a key from a configuration file or a command line:
//
//	4820                     Int64(4820)
//	-7                       Int64(-7)
//	12:34                    Pair(12, 34)
//	name:billing/eu          Name("billing", "eu")
//	hashtext:foo             HashText("foo")
//	hashtextextended:0:foo   HashTextExtended("foo", 0)
//
// A number has one spelling only: no plus sign, no leading zero, no space. Each slash divides a name,
// so ParseKey cannot read a part that contains one. The text of hashtext may contain anything,
// including colons.
//
// ParseKey refuses an empty part and an empty text, and white space at the beginning or the end of
// either, since these are more often mistakes than intended. [Name] and [HashText] accept them,
// except for an empty part.
//
// Errors match [ErrInvalidKey]. They quote s and say what is wrong with it.
func ParseKey(s string) (Key, error) {
	k, err := parseKey(s)
	if err != nil {
		return Key{}, fmt.Errorf("%w %q: %v; keys are written as %s", ErrInvalidKey, s, err, keyForms)
	}
	return k, nil
}

func parseKey(s string) (Key, error) {
	first, rest, found := strings.Cut(s, ":")
	if !found {
		n, err := parseInt(s, 64)
		return Int64(n), err
	}
	switch first {
	case "name":
		return parseName(rest)
	case "hashtext":
		return parseHash(rest, HashText)
	case "hashtextextended":
		seed, text, found := strings.Cut(rest, ":")
		n, err := parseInt(seed, 64)
		if err != nil {
			return Key{}, fmt.Errorf("seed: %w", err)
		}
		if !found {
			return Key{}, errors.New("there is no text after the seed")
		}
		return parseHash(text, func(s string) Key { return HashTextExtended(s, n) })
	}
	class, err := parseInt(first, 32)
	if err != nil {
		return Key{}, err
	}
	object, err := parseInt(rest, 32)
	if err != nil {
		return Key{}, err
	}
	return Pair(int32(class), int32(object)), nil
}

func parseInt(s string, bits int) (int64, error) {
	n, err := strconv.ParseInt(s, 10, bits)
	switch canonical := strconv.FormatInt(n, 10); {
	case s == "":
		return 0, errors.New("a number is missing")
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s does not fit in %d bits", s, bits)
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", s)
	case s != canonical:
		return 0, fmt.Errorf("write %q as %q", s, canonical)
	}
	return n, nil
}

func parseName(s string) (Key, error) {
	parts := strings.Split(s, "/")
	for _, p := range parts {
		if p == "" {
			return Key{}, errors.New("a part of the name is empty")
		}
		if err := checkSpace(p); err != nil {
			return Key{}, err
		}
	}
	return Name(parts...), nil
}

func parseHash(s string, hash func(string) Key) (Key, error) {
	if s == "" {
		return Key{}, errors.New("the text is empty")
	}
	if err := checkSpace(s); err != nil {
		return Key{}, err
	}
	k := hash(s)
	if k.IsZero() {
		return Key{}, errors.New("the text has a NUL byte or invalid UTF-8, which PostgreSQL cannot store")
	}
	return k, nil
}

func checkSpace(s string) error {
	if strings.TrimSpace(s) != s {
		return fmt.Errorf("%q begins or ends with white space", s)
	}
	return nil
}
