// Package held remembers which keys were taken on which connection or transaction, as far as this
// process can know.
//
// PostgreSQL grants a session a lock that it already holds, and then requires a second unlock. That
// is nearly always a mistake, often a lock that an earlier user left on a pooled connection.
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

// An owner is identified by its address, without being kept alive: a connection that is dropped
// with its locks leaves no entry here.
type owner = weak.Pointer[byte]

var (
	mu    sync.Mutex
	locks = map[owner]map[advisory.Key]advisory.Mode{}

	attempts = map[attempt]struct{}{}
)

// An attempt is a call in progress that may take a key.
type attempt struct {
	owner owner
	key   advisory.Key
}

// An Owner is a driver's connection or a transaction.
type Owner struct{ p *byte }

// OwnerOf returns v's Owner. If v is not a pointer it returns the zero Owner, which remembers
// nothing.
func OwnerOf(v any) Owner {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Pointer {
		return Owner{}
	}
	return Owner{(*byte)(r.UnsafePointer())}
}

// Begin reports whether no other call to take k is in progress on o, and registers this one until
// End. The server would grant k to both.
func (o Owner) Begin(k advisory.Key) bool {
	if o.p == nil {
		return true
	}
	mu.Lock()
	defer mu.Unlock()
	a := attempt{weak.Make(o.p), k}
	_, other := attempts[a]
	attempts[a] = struct{}{}
	return !other
}

// End removes the registration of Begin.
func (o Owner) End(k advisory.Key) {
	if o.p == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	delete(attempts, attempt{weak.Make(o.p), k})
}

// Mode returns the mode in which o holds k. ok is false if o does not hold k.
func (o Owner) Mode(k advisory.Key) (m advisory.Mode, ok bool) {
	if o.p == nil {
		return 0, false
	}
	mu.Lock()
	defer mu.Unlock()
	m, ok = locks[weak.Make(o.p)][k]
	return m, ok
}

// Keys returns the keys that o holds.
func (o Owner) Keys() []advisory.Key {
	if o.p == nil {
		return nil
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Collect(maps.Keys(locks[weak.Make(o.p)]))
}

// Add remembers that o holds the keys.
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
