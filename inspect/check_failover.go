package inspect

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// replication is what a primary shows of its standbys.
type replication struct {
	connected int // standbys that stream
	seen      int // of which the role may see the state
	inStep    int // of those, how many confirm commits
	names     string
	commit    setting // synchronous_commit of the role
	err       error   // the server did not show it

	idleClosed int64 // connections that the pool's SetConnMaxIdleTime has closed
}

func readReplication(ctx context.Context, conn *sql.Conn, settings map[string]setting) (r replication, err error) {
	r.names, r.commit = settings["synchronous_standby_names"].value, settings["synchronous_commit"]
	err = conn.QueryRowContext(ctx, lockfn.Standbys).Scan(&r.connected, &r.seen, &r.inStep)
	if err != nil && !lockfn.LinkGone(err) {
		r.err, err = err, nil
	}
	return r, err
}

// failoverOf returns the finding about a failover of the primary.
func failoverOf(r replication, s checkSettings) Finding {
	f := Finding{Subject: "failover"}
	if r.err != nil {
		f.Verdict, f.Value, f.Advice = Warning, "the server does not show its standbys: "+r.err.Error(), "Ask whoever runs it whether commits wait for a standby"
		return f
	}
	names, ok := lockfn.ReadStandbyNames(r.names)
	if !ok {
		f.Verdict, f.Value, f.Advice = Warning, fmt.Sprintf("synchronous_standby_names is %q", r.names), "This version cannot read it"
		return f
	}
	value := []string{count(r.connected, "standby", "standbys")}
	var advice []string
	switch {
	case names.Confirm == 0 && r.connected == 0:
		value[0] = "no standby"
	case names.Confirm == 0:
		value = append(value, "asynchronous")
		advice = append(advice, "A promoted standby may lack the last commits of work under a lock: name the standbys in synchronous_standby_names")
	default:
		value = append(value, "synchronous_standby_names "+r.names, "synchronous_commit "+r.commit.value+", "+r.commit.where())
		advice = synchronousAdvice(r, names)
	}
	if r.connected > 0 || names.Confirm > 0 || s.promotedAfter > 0 {
		text, slow := promotion(s)
		value = append(value, text, silentHost(r))
		if slow != "" {
			advice = append(advice, slow)
		}
	}
	f.Value, f.Advice = strings.Join(value, "; "), strings.Join(advice, ". ")
	if len(advice) > 0 {
		f.Verdict = Warning
	}
	return f
}

// What to set so that a host that went silent is not in the way for long: docs/pitfalls.md has the
// reasons.
const (
	usualConnectTimeout = 2 * time.Second
	usualIdleTime       = time.Minute
)

// silentHost returns what Check does not see of the program's settings for a host that goes silent.
func silentHost(r replication) string {
	unseen := fmt.Sprintf("connect_timeout (%v for each host)", usualConnectTimeout)
	if r.idleClosed == 0 {
		unseen += fmt.Sprintf(" and SetConnMaxIdleTime (%v)", usualIdleTime)
	}
	return "not seen from here, but needed if the primary's host goes silent: " + unseen
}

// synchronousAdvice returns what is wrong with synchronous replication.
func synchronousAdvice(r replication, names lockfn.StandbyNames) (advice []string) {
	if c := r.commit.value; c == "off" || c == "local" {
		advice = append(advice, "Commits of this role do not wait for a standby: ALTER ROLE … SET synchronous_commit = on")
	}
	// Each standby may be promoted, whether it is named or connected.
	promotable := r.connected
	if !names.All() {
		promotable = max(promotable, len(names.Names))
	}
	switch {
	case r.connected < names.Confirm:
		advice = append(advice, fmt.Sprintf("Commits that wait for %s do not end: connect them, or name fewer", count(names.Confirm, "standby", "standbys")))
	case r.seen == r.connected && r.inStep < names.Confirm:
		advice = append(advice, fmt.Sprintf("Only %s now: see sync_state in pg_stat_replication", count(r.inStep, "standby confirms", "standbys confirm")))
	}
	if names.Confirm < promotable {
		advice = append(advice, fmt.Sprintf("%d of %d standbys %s a commit, and a promoted one of the others lacks it: let all confirm that may be promoted, or have the failover manager promote only a standby that has",
			names.Confirm, promotable, map[bool]string{true: "confirms", false: "confirm"}[names.Confirm == 1]))
	}
	return advice
}

// promotion compares the time in which holders stop with that in which a standby is promoted.
func promotion(s checkSettings) (value, advice string) {
	d := deadline(s.failover)
	value = fmt.Sprintf("a Locker with WithFailover(%v) stops work %v after the primary's last answer", s.failover, d)
	if s.promotedAfter == 0 {
		return value, ""
	}
	value += fmt.Sprintf(", and a standby is promoted after %v", s.promotedAfter)
	if d <= s.promotedAfter {
		return value, ""
	}
	advice = fmt.Sprintf("For up to %v the old holder and the next may both work", d-s.promotedAfter)
	most := s.failover.Truncate(time.Second)
	for most > failover.Min && deadline(most) > s.promotedAfter {
		most -= time.Second
	}
	if deadline(most) > s.promotedAfter {
		return value, advice + fmt.Sprintf(": let the failover manager wait for at least %v", deadline(failover.Min))
	}
	return value, advice + fmt.Sprintf(": use WithFailover(%v), or let the failover manager wait for longer", most)
}

func deadline(f time.Duration) time.Duration {
	return failover.Of(f, failover.DefaultHeartbeat).Deadline
}
