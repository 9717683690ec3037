package inspect

import (
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A Verdict is the severity of a [Finding].
type Verdict uint8

const (
	// OK: no action is needed.
	OK Verdict = iota
	// Warning: locks exclude each other, but may be lost, kept or refused unexpectedly; or the
	// check of this subject had no result.
	Warning
	// Unsafe: locks do not exclude each other.
	Unsafe
)

// String returns "ok", "warning" or "unsafe".
func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Warning:
		return "warning"
	case Unsafe:
		return "unsafe"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// MarshalText returns the text of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// A Finding is the result of [Check] for one subject.
type Finding struct {
	Subject string  `json:"subject"` // such as "pooler" or the name of a setting
	Verdict Verdict `json:"verdict"`
	Value   string  `json:"value"`            // what the check found
	Advice  string  `json:"advice,omitempty"` // what it means and what to do

	reason advisory.UnsafeReason
}

// String returns the finding as one line.
func (f Finding) String() string {
	s := fmt.Sprintf("%-7v  %s: %s", f.Verdict, f.Subject, f.Value)
	if f.Advice != "" {
		s += ". " + f.Advice
	}
	return s
}

// A Report is the result of [Check].
type Report struct {
	Findings []Finding `json:"findings"`
}

// Verdict returns the most severe verdict of the findings.
func (r *Report) Verdict() Verdict {
	worst := OK
	for _, f := range r.Findings {
		worst = max(worst, f.Verdict)
	}
	return worst
}

// Err returns an [*advisory.UnsafeServerError] if a finding is [Unsafe], else nil.
func (r *Report) Err() error {
	for _, f := range r.Findings {
		if f.Verdict == Unsafe {
			return &advisory.UnsafeServerError{Reason: f.reason, Detail: f.Value}
		}
	}
	return nil
}

// Finding returns the finding for a subject. ok is false if there is none.
func (r *Report) Finding(subject string) (f Finding, ok bool) {
	for _, f := range r.Findings {
		if f.Subject == subject {
			return f, true
		}
	}
	return Finding{}, false
}

// String returns the report, with one line for each finding.
func (r *Report) String() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

func (r *Report) add(subject string, v Verdict, value, advice string) {
	r.Findings = append(r.Findings, Finding{Subject: subject, Verdict: v, Value: value, Advice: advice})
}

func (r *Report) addUnsafe(subject string, reason advisory.UnsafeReason, value, advice string) {
	r.Findings = append(r.Findings, Finding{Subject: subject, Verdict: Unsafe, Value: value, Advice: advice, reason: reason})
}
