package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFindingAboutAFailover(t *testing.T) {
	on := setting{value: "on", source: "default"}
	local := setting{value: "local", source: "user"}
	usual := checkSettings{failover: 15 * time.Second}
	promoted := func(after time.Duration) checkSettings {
		s := usual
		s.promotedAfter = after
		return s
	}
	for name, c := range map[string]struct {
		replication
		checkSettings
		verdict Verdict
		words   []string // of value or advice
		not     string
	}{
		"alone":                 {replication{commit: on}, usual, OK, []string{"no standby"}, "stops work"},
		"asynchronous":          {replication{connected: 2, commit: on}, usual, Warning, []string{"2 standbys; asynchronous", "stops work 9.75s after", "name the standbys in synchronous_standby_names"}, ""},
		"synchronous":           {replication{connected: 1, names: "b", commit: on}, usual, OK, []string{"1 standby; synchronous_standby_names b; synchronous_commit on, the default"}, ""},
		"synchronous, seen":     {replication{connected: 1, seen: 1, inStep: 1, names: "b", commit: on}, usual, OK, nil, ""},
		"all of two":            {replication{connected: 2, names: "ANY 2 (b, c)", commit: on}, usual, OK, nil, ""},
		"one of two":            {replication{connected: 2, names: "ANY 1 (b, c)", commit: on}, usual, Warning, []string{"1 of 2 standbys confirms a commit"}, ""},
		"the first of two":      {replication{connected: 2, names: "b, c", commit: on}, usual, Warning, []string{"1 of 2 standbys confirms a commit"}, ""},
		"one not connected":     {replication{connected: 1, names: "ANY 1 (b, c)", commit: on}, usual, Warning, []string{"1 of 2 standbys confirms a commit"}, ""},
		"one not named":         {replication{connected: 3, names: "ANY 2 (b, c)", commit: on}, usual, Warning, []string{"2 of 3 standbys confirm a commit"}, ""},
		"any of those there":    {replication{connected: 2, names: "ANY 2 (*)", commit: on}, usual, OK, nil, ""},
		"any one of those":      {replication{connected: 2, names: "*", commit: on}, usual, Warning, []string{"1 of 2 standbys confirms"}, ""},
		"nobody confirms":       {replication{names: "b", commit: on}, usual, Warning, []string{"0 standbys", "Commits that wait for 1 standby do not end"}, ""},
		"not in step":           {replication{connected: 1, seen: 1, names: "b", commit: on}, usual, Warning, []string{"Only 0 standbys confirm now"}, ""},
		"commits do not wait":   {replication{connected: 1, names: "b", commit: local}, usual, Warning, []string{"synchronous_commit local, set for the role", "ALTER ROLE … SET synchronous_commit = on"}, ""},
		"promoted in time":      {replication{connected: 1, names: "b", commit: on}, promoted(20 * time.Second), OK, []string{"a standby is promoted after 20s"}, ""},
		"promoted at the limit": {replication{connected: 1, names: "b", commit: on}, promoted(9750 * time.Millisecond), OK, nil, ""},
		"promoted too early":    {replication{connected: 1, names: "b", commit: on}, promoted(6 * time.Second), Warning, []string{"For up to 3.75s the old holder and the next may both work", "use WithFailover(10s)"}, ""},
		"promoted at once":      {replication{connected: 1, names: "b", commit: on}, promoted(time.Millisecond), Warning, []string{"let the failover manager wait for at least 1s"}, "use WithFailover"},
		"promoted, none seen":   {replication{commit: on}, promoted(6 * time.Second), Warning, []string{"no standby", "use WithFailover(10s)"}, ""},
		"a longer failover":     {replication{connected: 1, names: "b", commit: on}, checkSettings{promotedAfter: 20 * time.Second, failover: time.Minute}, Warning, []string{"WithFailover(1m0s)", "use WithFailover(28s)"}, ""},
		"not readable":          {replication{names: "ANY (", commit: on}, usual, Warning, []string{`"ANY ("`}, ""},
		"not shown":             {replication{err: errors.New("permission denied")}, usual, Warning, []string{"permission denied"}, ""},
	} {
		f := failoverOf(c.replication, c.checkSettings)
		if f.Subject != "failover" || f.Verdict != c.verdict || (f.Advice != "") != (f.Verdict == Warning) {
			t.Errorf("%s: %v", name, f)
		}
		for _, w := range c.words {
			if !strings.Contains(f.String(), w) {
				t.Errorf("%s: nothing of %q: %v", name, w, f)
			}
		}
		if c.not != "" && strings.Contains(f.String(), c.not) {
			t.Errorf("%s: %q: %v", name, c.not, f)
		}
	}
}

// Check cannot see what the program sets for a host that goes silent. It says so where there is
// another host to go to, without a warning that nothing could satisfy. An idle time that has closed
// connections is seen.
func TestFindingAboutASilentHost(t *testing.T) {
	on := setting{value: "on", source: "default"}
	usual := checkSettings{failover: 15 * time.Second}
	const unseen, idle = "connect_timeout (2s for each host)", "SetConnMaxIdleTime"
	for name, c := range map[string]struct {
		replication
		words, not []string
	}{
		"alone":               {replication{commit: on}, nil, []string{unseen, idle}},
		"with a standby":      {replication{connected: 1, names: "b", commit: on}, []string{unseen, idle + " (1m0s)"}, nil},
		"idle ones are ended": {replication{connected: 1, names: "b", commit: on, idleClosed: 1}, []string{unseen}, []string{idle}},
	} {
		f := failoverOf(c.replication, usual)
		if f.Verdict != OK || f.Advice != "" {
			t.Errorf("%s: %v", name, f)
		}
		for _, w := range c.words {
			if !strings.Contains(f.Value, w) {
				t.Errorf("%s: nothing of %q: %v", name, w, f)
			}
		}
		for _, w := range c.not {
			if strings.Contains(f.Value, w) {
				t.Errorf("%s: %q: %v", name, w, f)
			}
		}
	}
}

// The failover time that is advised is the longest whose holders stop in time.
func TestTheAdvisedFailoverTime(t *testing.T) {
	for after := time.Second; after < 30*time.Second; after += 250 * time.Millisecond {
		for f := 4 * time.Second; f < time.Minute; f += time.Second {
			_, advice := promotion(checkSettings{promotedAfter: after, failover: f})
			if (advice == "") != (deadline(f) <= after) {
				t.Fatalf("%v, %v: %q", after, f, advice)
			}
			_, advised, ok := strings.Cut(advice, "use WithFailover(")
			if !ok {
				continue
			}
			advised, _, _ = strings.Cut(advised, ")")
			d, err := time.ParseDuration(advised)
			if err != nil || deadline(d) > after || deadline(d+time.Second) <= after {
				t.Fatalf("%v, %v: %q", after, f, advice)
			}
		}
	}
}

func TestCheckOptionsOutOfRange(t *testing.T) {
	for name, o := range map[string]CheckOption{
		"PromotedAfter(-1s)": PromotedAfter(-time.Second), "Failover(3s)": Failover(3 * time.Second), "Failover(10h0m0s)": Failover(10 * time.Hour),
	} {
		if _, err := readCheckOptions([]CheckOption{o}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := readCheckOptions([]CheckOption{PromotedAfter(0), nil}); s.failover != 15*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
}
