package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/endsql"
)

// judge returns the suspects among the locks of a database.
func judge(locks []Lock, h place, after time.Duration) []Suspect {
	f := findings{waiters: map[advisory.Key][]Lock{}, blamed: map[advisory.Key]bool{}}
	var held []Lock
	for _, l := range locks {
		if l.Granted {
			held = append(held, l)
		} else {
			f.waiters[l.Key] = append(f.waiters[l.Key], l)
		}
	}
	if h.Recovery && len(locks) > 0 {
		f.add(standby(held))
	}
	for _, s := range circles(locks) {
		f.add(s)
	}
	var unseen, disabled []Lock
	for _, own := range byHolder(held) {
		switch l := own[0]; {
		case l.PID != 0 && slices.Contains(l.Hidden, "state"):
			unseen = append(unseen, own...)
		case l.PID != 0 && l.State == "disabled":
			disabled = append(disabled, own...)
		default:
			f.addHolder(own, after)
		}
	}
	f.addLongWaits(held, after)
	slices.SortStableFunc(f.suspects, func(a, b Suspect) int {
		return cmp.Or(-compareBools(a.Kind == Standby, b.Kind == Standby), -cmp.Compare(len(a.Waiters), len(b.Waiters)))
	})
	return append(f.suspects, unseenSuspects(h, unseen, disabled)...)
}

// findings are the suspects that have been found so far.
type findings struct {
	suspects []Suspect
	waiters  map[advisory.Key][]Lock
	blamed   map[advisory.Key]bool // keys whose holders are suspects
}

// add adds a suspect, with those that wait for its locks.
func (f *findings) add(s Suspect) {
	s.Waiters = nil
	seen := map[advisory.Key]bool{}
	for _, l := range s.Locks {
		if !seen[l.Key] {
			seen[l.Key] = true
			s.Waiters = append(s.Waiters, f.waiters[l.Key]...)
		}
		f.blamed[l.Key] = true
	}
	f.suspects = append(f.suspects, s)
}

// addHolder adds the holder of the locks if it is a suspect. Its state is visible.
func (f *findings) addHolder(own []Lock, after time.Duration) {
	l := own[0]
	switch {
	case l.PID == 0:
		if l.Age >= after {
			f.add(prepared(own))
		}
	case l.StateAge < after:
	case l.State == "idle":
		f.add(idle(own))
	case strings.HasPrefix(l.State, "idle in transaction"):
		f.add(idleInTransaction(own))
	case l.State == "active" && l.WaitEvent == "Client/ClientWrite":
		f.add(unread(own))
	}
}

// addLongWaits adds the keys that sessions have waited for at least as long as after, if their holders
// are no suspects.
func (f *findings) addLongWaits(held []Lock, after time.Duration) {
	for _, key := range keysOf(f.waiters) {
		ws := f.waiters[key]
		oldest := slices.MaxFunc(ws, func(a, b Lock) int { return cmp.Compare(a.Age, b.Age) })
		if oldest.Age >= after && !f.blamed[key] {
			f.suspects = append(f.suspects, longWait(key, held, ws, oldest))
		}
	}
}

func standby(held []Lock) Suspect {
	return Suspect{
		Kind:  Standby,
		Locks: held,
		Why: fmt.Sprintf("The server is in recovery: a standby. %s here, and exclude nobody on the primary.",
			count(len(held), "advisory lock is held", "advisory locks are held")),
		Do: "Make the programs connect to the primary (target_session_attrs=read-write, in a connection string that names both).",
	}
}

// unseenSuspects returns the suspects of sessions whose state is not visible: because they belong to
// other roles (unseen), or because track_activities is off (disabled).
func unseenSuspects(h place, unseen, disabled []Lock) (suspects []Suspect) {
	if len(unseen) > 0 {
		suspects = append(suspects, Suspect{
			Kind: Unseen, Locks: unseen,
			Why: fmt.Sprintf("The role %s may not see the state of %s, which are of other roles.", clean(h.Role), sessions(unseen)),
			Do:  "Use a role with the privileges of pg_read_all_stats, or let a superuser grant them.",
			SQL: "GRANT pg_read_all_stats TO " + identifier(h.Role) + ";",
		})
	}
	if len(disabled) > 0 {
		suspects = append(suspects, Suspect{
			Kind: Unseen, Locks: disabled,
			Why: fmt.Sprintf("The state of %s is not visible: track_activities is off there.", sessions(disabled)),
			Do:  "Turn track_activities on, which is the default: it can be off for the server, a database or a role.",
		})
	}
	return suspects
}

func idle(own []Lock) Suspect {
	l := own[0]
	s := Suspect{Kind: Idle, PID: l.PID, Locks: own}
	s.Why = fmt.Sprintf("%s has been idle for %v, outside of a transaction, and holds %s.", whose(l), round(l.StateAge), keys(own))
	if slices.ContainsFunc(own, func(o Lock) bool { return o.Key != l.Key }) {
		s.Kind = Leak
		s.Why += " A connection that went back to its pool with its locks looks like this."
	} else {
		s.Why += " Its work may be elsewhere, or the connection may have gone back to its pool with its lock."
	}
	s.Why += client(l) + " A Locker's session would have been pinged within a second."
	s.Do = "If no program works under " + it(own) + ", end the session, which releases " + it(own) + ". Then look for a path in the program on which it closes a connection without having unlocked it."
	s.SQL = terminate(l)
	return s
}

func idleInTransaction(own []Lock) Suspect {
	l := own[0]
	return Suspect{
		Kind: IdleInTransaction, PID: l.PID, Locks: own,
		Why: fmt.Sprintf("%s has been idle for %v in a transaction that began %v ago, and holds %s.%s If its transaction has a snapshot, it also keeps VACUUM from removing dead rows.",
			whose(l), round(l.StateAge), round(l.TransactionAge), keys(own), client(l)),
		Do:  "If its program no longer works in it, end the session: the transaction is rolled back and " + it(own) + " released. idle_in_transaction_session_timeout limits such a state.",
		SQL: terminate(l),
	}
}

func unread(own []Lock) Suspect {
	l := own[0]
	return Suspect{
		Kind: Unread, PID: l.PID, Locks: own,
		Why: fmt.Sprintf("%s has been active for %v and now waits for its client to take its answer, and holds %s. Once, that may be a slow client. If you see it each time, the client hangs or has vanished.%s",
			whose(l), round(l.StateAge), keys(own), client(l)),
		Do:  "Look again. If it stays so, end the session. tcp_user_timeout limits such a state.",
		SQL: terminate(l),
	}
}

func prepared(own []Lock) Suspect {
	l := own[0]
	s := Suspect{
		Kind: Prepared, Locks: own,
		Why: fmt.Sprintf("%s was prepared %v ago and has been neither committed nor rolled back since. It holds %s, has no session, and outlives restarts of the server.",
			capital(l.who()), round(l.Age), keys(own)),
		Do: "Ask its transaction manager for the outcome. In this database, as its owner or a superuser, commit it with COMMIT PREPARED or roll it back.",
	}
	if l.Prepared != "" {
		s.SQL = endsql.RollbackPrepared(l.Prepared)
	}
	return s
}

func longWait(key advisory.Key, held, ws []Lock, oldest Lock) Suspect {
	s := Suspect{Kind: LongWait, Waiters: ws}
	var pidList []string
	for _, l := range held {
		if l.Key != key {
			continue
		}
		s.Locks = append(s.Locks, l)
		if l.PID != 0 && !slices.Contains(pidList, strconv.Itoa(l.PID)) {
			pidList = append(pidList, strconv.Itoa(l.PID))
			s.PID = l.PID
		}
	}
	if len(pidList) != 1 {
		s.PID = 0
	}
	s.Why = fmt.Sprintf("%s for key %v, pid %d for %v.", count(len(ws), "session waits", "sessions wait"), key, oldest.PID, round(oldest.Age))
	for i, l := range s.Locks {
		if i == 3 {
			s.Why += fmt.Sprintf(" So do %d more.", len(s.Locks)-i)
			break
		}
		s.Why += fmt.Sprintf(" %s holds it %v", whose(l), l.Mode)
		if l.State != "" && l.PID != 0 {
			s.Why += fmt.Sprintf(", %s for %v", l.State, round(l.StateAge))
		}
		if len(l.WaitsFor) > 0 {
			s.Why += ", and waits itself for " + pids(l.WaitsFor)
		}
		s.Why += "."
	}
	s.Do = "The holder is active, or has not been idle for long: read what it does before you end it."
	if slices.ContainsFunc(s.Locks, func(l Lock) bool { return len(l.WaitsFor) > 0 }) {
		s.Do = "The holder itself waits: look first at what it waits for."
	}
	if len(s.Locks) == 0 {
		s.Do = "Nobody holds the key now: look again."
	}
	if len(pidList) > 0 {
		s.SQL = "SELECT pid, usename, application_name, state, wait_event_type, wait_event, query_start, query FROM pg_catalog.pg_stat_activity WHERE pid IN (" + strings.Join(pidList, ", ") + ");"
	}
	return s
}

// byHolder groups held locks by session or prepared transaction, in their order.
func byHolder(held []Lock) [][]Lock {
	var groups [][]Lock
	place := map[id]int{}
	for _, l := range held {
		h := l.id()
		i, ok := place[h]
		if !ok {
			i = len(groups)
			place[h] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

func keysOf(m map[advisory.Key][]Lock) []advisory.Key {
	var keys []advisory.Key
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func terminate(l Lock) string { return onSession("pg_terminate_backend", l) }

// onSession returns SQL that calls function on the session of l, if the session is still in the
// state in which it was seen. Sessions continue, and the server reuses pids. If the state was not
// visible, it returns "".
func onSession(function string, l Lock) string {
	if l.StateSince.IsZero() {
		return ""
	}
	activity := "pg_catalog.pg_stat_activity"
	if slices.Contains(l.Hidden, "user") { // the lock table is full: there is no place for the view's locks
		activity = "pg_catalog.pg_stat_get_activity(NULL)"
	}
	return endsql.OnSession(function, activity, l.PID, endsql.At("state_change", l.StateSince))
}

// client returns a sentence with what is known of the client of an idle session.
func client(l Lock) string {
	switch l.Client {
	case "":
		return ""
	case "local":
		return " Its client is on the server's machine, on a Unix socket: that process is there, but may be stopped."
	}
	return " Whether its client at " + l.Client + " is still there cannot be seen from SQL."
}

// whose returns the beginning of a sentence about the session of l.
func whose(l Lock) string {
	s := capital(l.who())
	if l.User != "" {
		s += " of user " + clean(l.User)
	}
	if l.Application != "" {
		s += ", application " + clean(l.Application) + ","
	}
	return s
}

func keys(own []Lock) string {
	const most = 10
	var words []string
	for i, l := range own {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(own)-most))
			break
		}
		w := l.Key.String()
		if l.Mode == advisory.Shared {
			w += " (shared)"
		}
		words = append(words, w)
	}
	if len(own) == 1 {
		return "key " + words[0]
	}
	return "keys " + strings.Join(words, ", ")
}

func it(own []Lock) string {
	if len(own) == 1 {
		return "it"
	}
	return "them"
}

func sessions(own []Lock) string {
	return count(len(byHolder(own)), "session", "sessions") + " with " + count(len(own), "lock", "locks")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// identifier quotes the name of a role.
func identifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
