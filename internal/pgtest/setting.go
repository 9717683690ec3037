package pgtest

import (
	"fmt"
	"strings"
)

// A setting is a line of postgresql.conf.
type setting struct{ name, value string }

// initdbArgs are the arguments of initdb for every temporary cluster. Small segments of WAL halve
// the time: initdb writes one that is full of zeros.
var initdbArgs = []string{"--encoding=UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"}

// speed has the settings of every temporary server; those of the caller come later. The size of the
// WAL is the default, which initdb would reduce with small segments.
var speed = []setting{{"fsync", "off"}, {"full_page_writes", "off"}, {"max_wal_size", "1GB"}}

// logging makes the log of a temporary server as [Server.Log] describes.
var logging = []setting{{"log_line_prefix", "%m [%p] %q%d/%a "}, {"log_min_messages", "warning"}}

// parseSettings reads name=value. As in postgresql.conf, a value may be quoted.
func parseSettings(lines []string) ([]setting, error) {
	var settings []setting
	for _, line := range lines {
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, fmt.Errorf("pgtest: setting %q is not of the form name=value", line)
		}
		if len(value) > 1 && value[0] == '\'' && value[len(value)-1] == '\'' {
			value = strings.ReplaceAll(value[1:len(value)-1], "''", "'")
		}
		settings = append(settings, setting{name, value})
	}
	return settings, nil
}

// String returns the line.
func (s setting) String() string {
	return s.name + " = '" + strings.ReplaceAll(s.value, "'", "''") + "'"
}

// last returns the value of name that is in force, or fallback if there is none.
func last(settings []setting, name, fallback string) string {
	for _, s := range settings {
		if s.name == name {
			fallback = s.value
		}
	}
	return fallback
}
