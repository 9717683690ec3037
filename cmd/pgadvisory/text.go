package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

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
