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

// toolOf names the tool whose key it is in that database, and is "" if none is known. The examples
// of this repository have numbers that anybody may choose.
func toolOf(key advisory.Key, database string) string {
	tool := interop.Identify(key, database)
	if strings.HasSuffix(tool, " of pgadvisory") {
		return ""
	}
	return tool
}

// clean returns s as one line without control characters: clients choose the names that
// are shown on somebody's terminal.
func clean(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// cell is clean for a table, in which nothing is a dash.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

// age returns d as people say it.
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

// session names a session by its pid.
func session(pid int) string {
	if pid == 0 {
		return "prepared"
	}
	return fmt.Sprint(pid)
}
