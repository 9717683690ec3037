package locker

import (
	"container/list"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A line is the requests that queue for a key, first come first served. To enter and to
// leave it costs the same however many there are: ten thousand callers may leave at once.
// Requests that want nothing any more are dropped when they are met.
type line struct {
	all       list.List
	exclusive list.List // those of all that are exclusive
	tries     list.List // those of all that do not wait
}

// live reports whether r wants the lock still.
func (r *request) live() bool { return !r.answered && (r.claim == nil || r.claim.won == nil) }

func (n *line) push(r *request) {
	r.inAll = n.all.PushBack(r)
	if r.settings.Mode == advisory.Exclusive {
		r.inExclusive = n.exclusive.PushBack(r)
	}
	if r.once {
		r.inTries = n.tries.PushBack(r)
	}
}

// pushFront has r be the next that is granted.
func (n *line) pushFront(r *request) {
	r.inAll = n.all.PushFront(r)
	if r.settings.Mode == advisory.Exclusive {
		r.inExclusive = n.exclusive.PushFront(r)
	}
	if r.once {
		r.inTries = n.tries.PushFront(r)
	}
}

// pushShared queues r, which is a shared try, before the first exclusive request.
func (n *line) pushShared(r *request) {
	writer := n.first(&n.exclusive)
	if writer == nil {
		n.push(r)
		return
	}
	r.inAll = n.all.InsertBefore(r, writer.inAll)
	if writer.once {
		r.inTries = n.tries.InsertBefore(r, writer.inTries)
	} else {
		r.inTries = n.tries.PushBack(r)
	}
}

// remove takes r out, if it is in.
func (n *line) remove(r *request) {
	for _, in := range []struct {
		list *list.List
		at   **list.Element
	}{{&n.all, &r.inAll}, {&n.exclusive, &r.inExclusive}, {&n.tries, &r.inTries}} {
		if *in.at != nil {
			in.list.Remove(*in.at)
			*in.at = nil
		}
	}
}

// first returns the first live request of one of the lists, or nil.
func (n *line) first(of *list.List) *request {
	for of.Len() > 0 {
		r := of.Front().Value.(*request)
		if r.live() {
			return r
		}
		n.remove(r)
		r.answer(nil)
	}
	return nil
}

func (n *line) front() *request { return n.first(&n.all) }
func (n *line) try() *request   { return n.first(&n.tries) }
func (n *line) len() int        { return n.all.Len() }

// conflicts reports whether a live request excludes one of that mode, which comes behind it.
func (n *line) conflicts(m advisory.Mode) bool { return n.excluder(m) != nil }

// conflictsUpTo reports whether such a request came no later than the stamp.
func (n *line) conflictsUpTo(m advisory.Mode, stamp uint64) bool {
	r := n.excluder(m)
	return r != nil && r.stamp <= stamp
}

// excluder returns the first live request that excludes one of that mode, or nil.
func (n *line) excluder(m advisory.Mode) *request {
	if m == advisory.Shared {
		return n.first(&n.exclusive)
	}
	return n.front()
}

// answerAll answers all with err and empties the line. It costs as much as there are requests,
// each of which it answers once.
func (n *line) answerAll(err error) {
	for r := n.front(); r != nil; r = n.front() {
		n.remove(r)
		r.answer(err)
	}
}

// answerTries answers those with err that do not wait.
func (n *line) answerTries(err error) {
	for r := n.try(); r != nil; r = n.try() {
		n.remove(r)
		r.answer(err)
	}
}

func excludes(a, b advisory.Mode) bool { return a == advisory.Exclusive || b == advisory.Exclusive }
