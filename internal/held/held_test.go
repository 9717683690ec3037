package held

import (
	"runtime"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

type conn struct {
	name string
	_    [64]byte
}

func TestOwnerRemembersByIdentity(t *testing.T) {
	a, b := &conn{name: "a"}, &conn{name: "a"}
	k := advisory.Int64(4820)
	OwnerOf(a).Add(advisory.Shared, k)
	if m, ok := OwnerOf(a).Mode(k); !ok || m != advisory.Shared {
		t.Errorf("Mode = %v, %v", m, ok)
	}
	if _, ok := OwnerOf(b).Mode(k); ok {
		t.Error("another connection has the key")
	}
	OwnerOf(a).Remove(k)
	if _, ok := OwnerOf(a).Mode(k); ok {
		t.Error("held after Remove")
	}
	OwnerOf(a).Add(advisory.Exclusive, k, advisory.Int64(2))
	OwnerOf(a).Clear()
	if _, ok := OwnerOf(a).Mode(k); ok {
		t.Error("held after Clear")
	}
	runtime.KeepAlive(a)
}

func TestOneAttemptAtATime(t *testing.T) {
	a, b := OwnerOf(&conn{}), OwnerOf(&conn{})
	k, other := advisory.Int64(1), advisory.Int64(2)
	if !a.Begin(k) || !b.Begin(k) || !a.Begin(other) {
		t.Error("an attempt is in the way of one for another key or connection")
	}
	if a.Begin(k) {
		t.Error("two attempts at a time")
	}
	if a.End(k); !a.Begin(k) {
		t.Error("an attempt is in the way after its end")
	}
	v := OwnerOf(conn{})
	if first, second := v.Begin(k), v.Begin(k); !first || !second {
		t.Error("the attempts of a value are remembered")
	}
}

func TestValuesAreNotRemembered(t *testing.T) {
	k := advisory.Int64(4820)
	OwnerOf(conn{}).Add(advisory.Exclusive, k)
	if _, ok := OwnerOf(conn{}).Mode(k); ok {
		t.Error("a value is remembered")
	}
}

func TestOwnerIsNotKeptAlive(t *testing.T) {
	func() { OwnerOf(&conn{}).Add(advisory.Exclusive, advisory.Int64(7)) }()
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		mu.Lock()
		n := 0
		for _, keys := range locks {
			if _, ok := keys[advisory.Int64(7)]; ok {
				n++
			}
		}
		mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the keys of a connection that is gone are still remembered")
		}
		time.Sleep(time.Millisecond)
	}
}
