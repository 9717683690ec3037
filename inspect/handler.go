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
	"net/url"
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
// The handler accepts only GET and HEAD. It serves one request at a time, with three short queries
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
	v, problem := parseView(r.URL.Query())
	if problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	s, err := h.snapshot(r.Context(), v.after)
	if err != nil {
		head.Set("Retry-After", "5")
		http.Error(w, h.unavailable(err), http.StatusServiceUnavailable)
		return
	}
	contentType, body, err := v.render(s)
	if err != nil {
		http.Error(w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	head.Set("Content-Type", contentType)
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// A view is how the parameters of a request want the page.
type view struct {
	json      bool
	refresh   int // seconds, or 0
	after     time.Duration
	afterText string // as it was given
}

// parseView returns the text of the response as problem if a parameter is not valid.
func parseView(q url.Values) (v view, problem string) {
	v = view{after: defaultAfter, afterText: q.Get("after")}
	switch q.Get("format") {
	case "", "html":
	case "json":
		v.json = true
	default:
		return v, "The format is html, the default, or json."
	}
	if v.afterText != "" {
		var err error
		if v.after, err = time.ParseDuration(v.afterText); err != nil || v.after < minAfter {
			return v, fmt.Sprintf("The least age of a suspect, after, is a time such as 30s, of at least %v.", minAfter)
		}
	}
	refresh, _ := strconv.Atoi(q.Get("refresh"))
	v.refresh = max(0, min(refresh, 3600))
	return v, ""
}

// render returns the content of the response.
func (v view) render(s *snapshot) (contentType string, _ []byte, err error) {
	var body bytes.Buffer
	if v.json {
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(s)
		return "application/json", body.Bytes(), err
	}
	err = pageTemplate.Execute(&body, newPage(s, v.refresh, v.afterText))
	return "text/html; charset=utf-8", body.Bytes(), err
}

// unavailable returns the text of the response to a request that the database has not answered. The
// driver's error may contain names of hosts and users, and is not part of it.
func (h *handler) unavailable(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bound.ErrNoAnswer) {
		return fmt.Sprintf("The database did not answer within %v.", h.timeout)
	}
	return "The database is not reachable, or refused the query."
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
