package locker

import "errors"

func init() { verify = checkInvariants }

// CountRegions counts the locked regions of l's mutex from now on.
func CountRegions(l *Locker) func() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	check := l.mu.check
	l.mu.check = func() { n++; check() }
	return func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return n
	}
}

// ChangeDoubt has l's only proof be doubted for the reason text, or confirmed if text is empty, as by a
// beat.
func ChangeDoubt(l *Locker, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changeDoubt(text)
}

// ChangeDoubtWhenReported calls ChangeDoubt for each of the texts: as soon as the last event before is
// taken from the list, at the end of that locked region.
func ChangeDoubtWhenReported(l *Locker, texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	check, before := l.mu.check, 0
	l.mu.check = func() {
		check()
		n := len(l.doubt.events)
		if before == 1 && n == 0 && len(texts) > 0 {
			l.changeDoubt(texts[0])
			texts = texts[1:]
			n = len(l.doubt.events)
		}
		before = n
	}
}

func (l *Locker) changeDoubt(text string) {
	for _, p := range l.proofs {
		p.doubt = nil
		if text != "" {
			p.doubt = errors.New(text)
		}
	}
	l.reportStanding()
}
