// Package held remembers which keys were taken on which connection or
// transaction, as far as this process can know.
//
// PostgreSQL grants a session a lock that it has already, and then wants a second
// unlock; that is nearly always a mistake, often a lock that an earlier borrower
// left on a pooled connection.
package held

import (
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// An owner is known by its address, without being kept alive: a connection
// that is dropped with its locks leaves nothing here.
type owner = weak.Pointer[byte]

var (
	mu    sync.Mutex
	locks = map[owner]map[advisory.Key]advisory.Mode{}

	underWay = map[attempt]struct{}{}
)

// An attempt is a call that may take a key.
type attempt struct {
	owner owner
	key   advisory.Key
}

// Owner is a driver's connection or a transaction.
type Owner struct{ p *byte }

// OwnerOf returns v's Owner. The zero Owner, for what is no pointer, remembers
// nothing.
func OwnerOf(v any) Owner {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Pointer {
		return Owner{}
	}
	return Owner{(*byte)(r.UnsafePointer())}
}

// Begin reports whether no call to take k is under way, and begins one, up to End. The
// server would grant it to both.
func (o Owner) Begin(k advisory.Key) bool {
	if o.p == nil {
		return true
	}
	mu.Lock()
	defer mu.Unlock()
	a := attempt{weak.Make(o.p), k}
	_, other := underWay[a]
	underWay[a] = struct{}{}
	return !other
}

// End ends what Begin has begun.
func (o Owner) End(k advisory.Key) {
	if o.p == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	delete(underWay, attempt{weak.Make(o.p), k})
}

// Mode returns in which mode k is held.
func (o Owner) Mode(k advisory.Key) (m advisory.Mode, ok bool) {
	if o.p == nil {
		return 0, false
	}
	mu.Lock()
	defer mu.Unlock()
	m, ok = locks[weak.Make(o.p)][k]
	return m, ok
}

// Keys returns the keys that are held.
func (o Owner) Keys() []advisory.Key {
	if o.p == nil {
		return nil
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Collect(maps.Keys(locks[weak.Make(o.p)]))
}

// Add remembers that the keys are held.
func (o Owner) Add(m advisory.Mode, keys ...advisory.Key) {
	if o.p == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	w := weak.Make(o.p)
	if locks[w] == nil {
		locks[w] = map[advisory.Key]advisory.Mode{}
		runtime.AddCleanup(o.p, forget, w)
	}
	for _, k := range keys {
		locks[w][k] = m
	}
}

// Remove forgets k.
func (o Owner) Remove(k advisory.Key) {
	if o.p == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	delete(locks[weak.Make(o.p)], k)
}

// Clear forgets all keys.
func (o Owner) Clear() {
	if o.p == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	clear(locks[weak.Make(o.p)])
}

func forget(w owner) {
	mu.Lock()
	defer mu.Unlock()
	delete(locks, w)
}
