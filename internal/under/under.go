// Package under keeps, in a ctx, the locks under which work runs.
package under

import "context"

type contextKey struct{}

// locks are the innermost lock under which work runs, and those further out.
type locks struct {
	lock  any
	outer *locks
}

// NewContext returns the ctx of work under lock.
func NewContext(ctx context.Context, lock any) context.Context {
	outer, _ := ctx.Value(contextKey{}).(*locks)
	return context.WithValue(ctx, contextKey{}, &locks{lock, outer})
}

// Lock returns the innermost lock under which ctx's work runs, or nil.
func Lock(ctx context.Context) any {
	if l, ok := ctx.Value(contextKey{}).(*locks); ok {
		return l.lock
	}
	return nil
}

// Holds reports whether ctx is that of work under a lock on key that is held, at any depth. A
// wait for key there would wait for itself.
func Holds[K comparable](ctx context.Context, key K) bool {
	l, _ := ctx.Value(contextKey{}).(*locks)
	for ; l != nil; l = l.outer {
		lock, ok := l.lock.(interface {
			Key() K
			Context() context.Context
		})
		if ok && lock.Key() == key && lock.Context().Err() == nil {
			return true
		}
	}
	return false
}
