package main

import (
	"testing"
	"time"
)

// By default the command is killed before the server lets go of the lock.
func TestDefaultGrace(t *testing.T) {
	for _, test := range []struct {
		failover time.Duration // 0: not given
		want     time.Duration
	}{
		{0, 3 * time.Second},
		{4 * time.Second, 750 * time.Millisecond},
		{15 * time.Second, 3 * time.Second},
		{60 * time.Second, 5 * time.Second},
	} {
		r := &run{failover: seconds{Duration: test.failover, set: test.failover != 0}}
		if got := r.defaultGrace(); got != test.want {
			t.Errorf("--failover %v: %v, want %v", test.failover, got, test.want)
		}
	}
	r := &run{order: order{Transaction: true}}
	if got := r.defaultGrace(); got != 5*time.Second {
		t.Errorf("--scope transaction: %v", got)
	}
}
