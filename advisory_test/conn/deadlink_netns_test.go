package conn_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
)

// The same between two hosts, on a link that drops packets: closing is no news to the
// other side there, and the kernels send again what was lost once the link is back.
func TestDeadLinkBetweenHosts(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	dirs, through := []netns.Direction{netns.Both}, harness.Drivers[:2]
	if harness.ManyDeaths {
		dirs, through = []netns.Direction{netns.Both, netns.Up, netns.Down}, harness.Drivers
	}
	for _, dir := range dirs {
		t.Run(dir.String(), func(t *testing.T) {
			pair, err := netns.New(t)
			if err != nil {
				t.Skip(err)
			}
			server := pgtest.Options{
				Netns:    pair.ServerNS,
				Settings: []string{"listen_addresses=" + pair.ServerIP, "max_connections=300"},
			}.NewServer(t)
			lines := harness.LinesTo(t, harness.Drivers[0].Open(t, server.SocketURL()))
			calls := slices.DeleteFunc(slices.Clone(deadCalls), func(c harness.DeadCall) bool { return c.Bound > 0 })
			link := &droppingLink{pair: pair, dir: dir}
			link.ready.Add(len(calls) * len(through))
			link.done.Add(len(calls) * len(through))
			for _, c := range calls {
				for _, d := range through {
					lines.Call(c, d, "", func(t *testing.T, application string) (*harness.Pool, harness.Mortal) {
						l := &sharedLink{droppingLink: link}
						t.Cleanup(l.leave)
						return d.Between(t, pair, harness.WithParameter(t, server.URL(), "application_name", application)), l
					})
				}
			}
			lines.Wait()
		})
	}
}

// A droppingLink dies when all of its lines are ready, and revives when their calls are
// done.
type droppingLink struct {
	pair        *netns.Pair
	dir         netns.Direction
	ready, done sync.WaitGroup
	drop, heal  sync.Once
}

type sharedLink struct {
	*droppingLink
	readied, finished sync.Once
}

func (l *sharedLink) DieAt(string) <-chan struct{} {
	l.DieNow()
	dead := make(chan struct{})
	close(dead)
	return dead
}

func (l *sharedLink) DieNow() {
	l.readied.Do(l.ready.Done)
	l.ready.Wait()
	l.drop.Do(func() { l.pair.Drop(l.dir) })
}

func (l *sharedLink) Revive() {
	l.finished.Do(l.done.Done)
	l.done.Wait()
	l.heal.Do(l.pair.Heal)
}

// leave is for a line whose test has failed before.
func (l *sharedLink) leave() {
	l.readied.Do(l.ready.Done)
	l.finished.Do(l.done.Done)
}
