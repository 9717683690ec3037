package harness

import (
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/inspect"
)

func CheckServer(t testing.TB, p *Pool) *inspect.Report {
	t.Helper()
	r, err := inspect.Check(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Finds fails the test unless the report has that verdict on the subject, with all of the
// words in its value or advice.
func Finds(t testing.TB, r *inspect.Report, subject string, v inspect.Verdict, words ...string) {
	t.Helper()
	f, ok := r.Finding(subject)
	if !ok || f.Verdict != v {
		t.Errorf("%s: want %v: %v", subject, v, f)
	}
	for _, w := range words {
		if !strings.Contains(f.String(), w) {
			t.Errorf("%s: nothing of %q: %v", subject, w, f)
		}
	}
	if f.Verdict != inspect.OK && f.Advice == "" {
		t.Errorf("%s: no advice: %v", subject, f)
	}
}
