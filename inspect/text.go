package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// clean returns s as one line without control characters, for a terminal. Clients choose their
// application_name, so it may contain any.
func clean(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// round rounds d for display: 12s, 3m5s, 26h0m0s; below a second 250ms.
func round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// pids returns "pid 812" or "pids 812, 901".
func pids(list []int) string {
	const most = 10
	var words []string
	for i, pid := range list {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(list)-most))
			break
		}
		if pid == 0 {
			words = append(words, "a prepared transaction")
		} else {
			words = append(words, strconv.Itoa(pid))
		}
	}
	switch {
	case len(list) == 1 && list[0] == 0:
		return words[0]
	case len(list) == 1:
		return "pid " + words[0]
	}
	return "pids " + strings.Join(words, ", ")
}
