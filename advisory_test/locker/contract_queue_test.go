package locker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func firstComeFirstServed(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	const n = 5
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lock, err := w.Lock(context.Background(), w.key)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			harness.Release(t, lock)
		})
		w.waiting(i + 1)
	}
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("%v", order)
	}
}

func readerBehindWriter(t *testing.T, w *world) {
	reader := w.try(t, w.key, advisory.Shared)
	writer := w.lockLater(t.Context())
	w.waiting(1)
	w.isTaken(t, w.key, advisory.Shared) // nor does a try
	late := w.lockLater(t.Context(), advisory.Shared)
	w.waiting(2)
	w.stillWaits(t, late)
	harness.Release(t, reader)
	lock := granted(t, writer)
	w.stillWaits(t, late)
	harness.Release(t, lock)
	harness.Release(t, granted(t, late))
}

func writerLeaves(t *testing.T, w *world) {
	reader := w.try(t, w.key, advisory.Shared)
	ctx, cancel := context.WithCancel(t.Context())
	writer := w.lockLater(ctx)
	w.waiting(1)
	a, b := w.lockLater(t.Context(), advisory.Shared), w.lockLater(t.Context(), advisory.Shared)
	w.waiting(3)
	cancel()
	harness.IsErr(t, harness.Receive(t, writer).err, context.Canceled)
	harness.Release(t, granted(t, a))
	harness.Release(t, granted(t, b))
	harness.Release(t, reader)
}

func readerJoins(t *testing.T, w *world) {
	for i := range 20 {
		last := w.try(t, w.key, advisory.Shared)
		time.Sleep(60 * time.Millisecond) // a Locker is not to hand it over any more
		ctx, cancel := context.WithCancel(t.Context())
		joins := w.lockLater(ctx, advisory.Shared)
		if i%5 == 4 {
			go cancel() // or does not
		}
		time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		harness.Release(t, last)
		if r := harness.Receive(t, joins); r.err == nil {
			if w.theirs(w.key) {
				t.Fatal("it is free while a reader has it")
			}
			harness.Release(t, r.lock)
		} else {
			harness.IsErr(t, r.err, context.Canceled)
		}
		cancel()
		harness.Eventually(t, "it is free", func() bool { return w.theirs(w.key) })
	}
}
