//go:build unix

package failover_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A Locker asks for the timeline in a statement that it sends anyway. On a server that does not permit
// the question it works without, after one round trip more.
func TestLockerWhereTheTimelineIsNotPermitted(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			url := harness.Unprivileged(t, server)
			super := d.Open(t, strings.Replace(server.URL(), "/postgres?", "/"+harness.Ask[string](t, d.Open(t, url), "SELECT current_database()")+"?", 1))
			// asks uses a Locker, and returns how often it asked about the server, and for the timeline.
			asks := func(opts ...locker.Option) (about, timeline int64, err error) {
				var aboutSent, timelineSent atomic.Int64
				p, link := d.Proxied(t, url)
				link.FreezeAfter(func(m proxy.Message) bool {
					if m.Type == 'Q' || m.Type == 'P' {
						aboutSent.Add(int64(strings.Count(m.Text, "pg_catalog.version()")))
						timelineSent.Add(int64(strings.Count(m.Text, "pg_control_system")))
					}
					return false
				})
				err = use(p.Locker(t, append(opts, locker.WithoutServerCheck())...))
				return aboutSent.Load(), timelineSent.Load(), err
			}
			if about, timeline, err := asks(); about != 1 || timeline != 1 || err != nil {
				t.Errorf("it asks %d times about the server, and %d times for the timeline (%v)", about, timeline, err)
			}
			for _, fn := range []string{"pg_control_system()", "pg_walfile_name(pg_lsn)"} {
				harness.DoSQL(t, super, "REVOKE EXECUTE ON FUNCTION "+fn+" FROM PUBLIC")
				if about, timeline, err := asks(); about != 2 || timeline != 1 || err != nil {
					t.Errorf("without %s it asks %d times about the server, and %d times for the timeline (%v)", fn, about, timeline, err)
				}
			}
			want := "permission denied for function pg_walfile_name"
			if server.Version() < 130000 {
				want = "WithFencing needs PostgreSQL 13"
			}
			if _, _, err := asks(locker.WithFencing()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("tokens: %v", err)
			}
		})
	}
}
