package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
)

// handlerTimeout limits the queries of one request.
const handlerTimeout = 5 * time.Second

// Handler returns a handler that serves a page with the advisory locks of the database that db is
// connected to: who holds them, who waits, a drawing of who waits for whom, and the suspects. It
// panics if db is nil. The parameters are:
//
//   - ?format=json returns the same as JSON.
//   - ?refresh=5 returns a page that reloads every five seconds.
//   - ?after=30s is [After] for the suspects.
//
// It answers GET and HEAD alone, and one request at a time, with three short queries that take 5
// seconds at most; then, or if the database cannot be reached, the answer is 503. The page has no
// script and loads nothing. Of many locks it shows those that somebody waits for, and
// says how many were left out; the JSON has all.
//
// The handler accepts only GET and HEAD. It serves one request at a time, with two short queries
// that take at most 5 seconds. If they take longer, or the database is not reachable, the status is
// 503. The page has no script and loads nothing. If there are many locks, it shows those that
// sessions wait for and the number of the others; the JSON has all of them.
func Handler(db DB) http.Handler {
	if given.IsNil(db) {
		panic("pgadvisory: inspect.Handler: db is nil")
	}
	return &handler{db: db, turn: make(chan struct{}, 1), timeout: handlerTimeout}
}

type handler struct {
	db      DB
	turn    chan struct{} // so that at most one request waits for a database that hangs
	timeout time.Duration
}

// A snapshot is the content of both formats.
type snapshot struct {
	Database      string    `json:"database"`
	Role          string    `json:"role"`
	ServerVersion string    `json:"server_version"`
	InRecovery    bool      `json:"in_recovery"`
	Time          time.Time `json:"time"`
	Locks         []Lock    `json:"locks"`
	Foreign       int       `json:"foreign"`
	Suspects      []Suspect `json:"suspects"`
}

var contentPolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Security-Policy", contentPolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "This page can only be read: GET or HEAD.", http.StatusMethodNotAllowed)
		return
	}
	q := r.URL.Query()
	format := q.Get("format")
	if !slices.Contains([]string{"", "html", "json"}, format) {
		http.Error(w, "The format is html, the default, or json.", http.StatusBadRequest)
		return
	}
	after := defaultAfter
	if text := q.Get("after"); text != "" {
		var err error
		if after, err = time.ParseDuration(text); err != nil || after < minAfter {
			http.Error(w, fmt.Sprintf("The least age of a suspect, after, is a time such as 30s, of at least %v.", minAfter), http.StatusBadRequest)
			return
		}
	}
	s, err := h.snapshot(r.Context(), after)
	if err != nil {
		head.Set("Retry-After", "5")
		// The driver's error may contain names of hosts and users.
		text := "The database is not reachable, or refused the query."
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bound.ErrNoAnswer) {
			text = fmt.Sprintf("The database did not answer within %v.", h.timeout)
		}
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	var body bytes.Buffer
	if format == "json" {
		head.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(s)
	} else {
		head.Set("Content-Type", "text/html; charset=utf-8")
		refresh, _ := strconv.Atoi(q.Get("refresh"))
		err = pageTemplate.Execute(&body, newPage(s, max(0, min(refresh, 3600)), q.Get("after")))
	}
	if err != nil {
		http.Error(w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	head.Set("Content-Length", strconv.Itoa(body.Len()))
	w.Write(body.Bytes())
}

// snapshot reads the locks, in bounded time even if the driver blocks. If the driver blocks, it
// keeps the turn until it returns.
func (h *handler) snapshot(ctx context.Context, after time.Duration) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return bound.Call(ctx, func(ctx context.Context) (*snapshot, error) {
		defer func() { <-h.turn }()
		at, err := readPlace(ctx, h.db)
		if err != nil {
			return nil, err
		}
		locks, err := Locks(ctx, h.db)
		if err != nil {
			return nil, err
		}
		foreign, err := Foreign(ctx, h.db)
		if err != nil {
			return nil, err
		}
		s := &snapshot{
			Database: at.Database, Role: at.Role, ServerVersion: at.Version, InRecovery: at.Recovery, Time: at.Now,
			Locks: locks, Foreign: foreign, Suspects: judge(locks, at, after),
		}
		if s.Locks == nil {
			s.Locks = []Lock{}
		}
		if s.Suspects == nil {
			s.Suspects = []Suspect{}
		}
		return s, nil
	}, nil, func(*snapshot, error) {})
}
