package under_test

import (
	"context"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/under"
)

type lock struct {
	key string
	ctx context.Context
}

func (l *lock) Key() string              { return l.key }
func (l *lock) Context() context.Context { return l.ctx }

func TestLocksAtAnyDepth(t *testing.T) {
	ctx := t.Context()
	if under.Lock(ctx) != nil || under.Holds(ctx, "a") {
		t.Error("there is a lock where there is none")
	}
	held, release := context.WithCancel(t.Context())
	outer, inner := &lock{"a", held}, &lock{"b", t.Context()}
	one := under.NewContext(ctx, outer)
	two := under.NewContext(one, inner)
	if under.Lock(one) != outer || under.Lock(two) != inner {
		t.Errorf("%v and %v, want %v and %v", under.Lock(one), under.Lock(two), outer, inner)
	}
	for _, v := range []struct {
		ctx  context.Context
		key  string
		want bool
	}{{ctx, "a", false}, {one, "a", true}, {one, "b", false}, {two, "a", true}, {two, "b", true}, {two, "c", false}} {
		if got := under.Holds(v.ctx, v.key); got != v.want {
			t.Errorf("%q: %v, want %v", v.key, got, v.want)
		}
	}
	if under.Holds(two, 1) {
		t.Error("a key of another type is held")
	}
	release()
	if under.Holds(two, "a") || !under.Holds(two, "b") {
		t.Error("a lock that was released is held, or the one that is held is not")
	}
}
