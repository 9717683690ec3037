package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

// toolOf returns the name of the tool whose key it is in the database, or "". It does not name the
// examples of this repository, whose numbers other programs may have chosen too.
func toolOf(key advisory.Key, database string) string {
	tool := interop.Identify(key, database)
	if strings.HasSuffix(tool, " of pgadvisory") {
		return ""
	}
	return tool
}

// clean returns s as one line without control characters. Clients choose the names that are shown
// on the terminal.
func clean(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// cell returns s for a cell of a table, or a dash if s is empty.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

// age returns d, rounded for display.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func pids(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	words := make([]string, len(list))
	for i, pid := range list {
		words[i] = session(pid)
	}
	return strings.Join(words, ",")
}

// session returns the name of a session: its pid.
func session(pid int) string {
	if pid == 0 {
		return "prepared"
	}
	return fmt.Sprint(pid)
}
