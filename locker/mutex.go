package locker

import "sync"

// A checkedMutex is the Locker's mutex. In test builds it verifies the Locker's invariants at
// the end of each locked region.
type checkedMutex struct {
	sync.Mutex
	check   func() // nil outside tests
	regions int    // since the last check
}

// Unlock verifies the invariants, in test builds, and unlocks the mutex.
func (m *checkedMutex) Unlock() {
	if m.check != nil {
		defer m.Mutex.Unlock() // also if check panics: the test's own Close needs it
		m.check()
		return
	}
	m.Mutex.Unlock()
}

// verify panics if an invariant of the Locker does not hold. It is nil outside test builds.
var verify func(*Locker)

// illegal reports a transition that the diagrams of the package comment do not have. It panics
// in test builds.
func illegal(transition, from string) {
	if verify != nil {
		panic("locker: " + transition + " while " + from)
	}
}
