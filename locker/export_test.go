package locker

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
