package inspect

import (
	_ "embed"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var style string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"clean": clean,
	"age":   func(d time.Duration) string { return round(d).String() },
	"pids":  pids,
	"style": func() template.CSS { return template.CSS(style) },
	"count": count,
	"time":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
	"version": func(s string) string { // "15.18 (Debian 15.18-0+deb12u1)"
		s, _, _ = strings.Cut(s, " ")
		return clean(s)
	},
	"add": func(a, b int) int { return a + b },
}).Parse(pageText))

// The limits of a page.
const (
	maxRows  = 200
	maxCards = 30
)

// A page is the data of the template.
type page struct {
	*snapshot
	Refresh int    // seconds; 0: the page does not reload
	After   string // of the request

	Holders, Waiters       []Lock
	Held, Sessions, Waits  int // the totals
	MoreHolders, MoreWaits int // how many the page omits
	MoreSuspects           int
	Hidden                 int  // sessions whose client, state and times are hidden
	Nameless               bool // the lock table is full, so there are no names of roles
	Cards                  []Suspect
	Graph                  *graph
}

func newPage(s *snapshot, refresh int, after string) *page {
	p := &page{snapshot: s, Refresh: refresh, After: after}
	holders, hidden := map[id]bool{}, map[int]bool{}
	for _, l := range s.Locks {
		if l.Granted {
			p.Holders = append(p.Holders, l)
			holders[l.id()] = true
		} else {
			p.Waiters = append(p.Waiters, l)
		}
		if slices.Contains(l.Hidden, "state") {
			hidden[l.PID] = true
		}
		p.Nameless = p.Nameless || slices.Contains(l.Hidden, "user")
	}
	p.Held, p.Sessions, p.Waits, p.Hidden = len(p.Holders), len(holders), len(p.Waiters), len(hidden)

	slices.SortStableFunc(p.Holders, func(a, b Lock) int { return -compareBools(len(a.WaitedForBy) > 0, len(b.WaitedForBy) > 0) })
	slices.SortStableFunc(p.Waiters, func(a, b Lock) int { return a.Since.Compare(b.Since) })
	p.Holders, p.MoreHolders = first(p.Holders, maxRows)
	p.Waiters, p.MoreWaits = first(p.Waiters, maxRows)
	p.Cards, p.MoreSuspects = first(s.Suspects, maxCards)

	suspect := map[id]bool{}
	for _, x := range s.Suspects {
		if x.Kind != Unseen && x.Kind != Standby && x.Kind != LongWait {
			for _, l := range x.Locks {
				suspect[l.id()] = true
			}
		}
	}
	p.Graph = newGraph(s.Locks, suspect)
	return p
}

// Link returns the address of the page in another format or with another refresh, with the other
// parameters of the request.
func (p *page) Link(refresh int, format string) string {
	q := url.Values{}
	if p.After != "" {
		q.Set("after", p.After)
	}
	if format != "" {
		q.Set("format", format)
	}
	if refresh > 0 {
		q.Set("refresh", strconv.Itoa(refresh))
	}
	return "?" + q.Encode()
}

func first[T any](s []T, n int) ([]T, int) {
	if len(s) <= n {
		return s, 0
	}
	return s[:n], len(s) - n
}
