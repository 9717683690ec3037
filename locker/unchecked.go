package locker

import "fmt"

// An uncheckedError says that the check could not be made.
type uncheckedError struct{ error }

func (e uncheckedError) Error() string {
	return fmt.Sprintf("whether locks exclude here could not be checked (raise MaxOpenConns, or see WithoutServerCheck): %v", e.error)
}

func (e uncheckedError) Unwrap() error { return e.error }

// rememberUnchecked stores why no check could be made yet, for callers whose ctx ends before it is.
func (l *Locker) rememberUnchecked(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncheckable = err
}

// whyUnchecked adds the reason to err if no lock could be given out for want of a check.
func (l *Locker) whyUnchecked(err error) error {
	err = l.whyUnproven(err)
	if !l.checkDue() {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.uncheckable == nil:
		return err
	case err == nil:
		return l.uncheckable
	}
	return fmt.Errorf("%w: %w", err, l.uncheckable)
}
