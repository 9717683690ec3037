//go:build unix

package failover_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Check sees what a failover means for locks, with the rights of a superuser and without any.
func TestCheckBeforeAFailover(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 2)
	primary, standby := r.Primary, r.Standbys[0]
	unprivileged := harness.Unprivileged(t, primary.Server)
	defer primary.Synchronous("") // the database is dropped later
	finding := func(d harness.Driver, url string, want inspect.Verdict, words []string, opts ...inspect.CheckOption) {
		t.Helper()
		report, err := inspect.Check(t.Context(), d.Open(t, url).DB, opts...)
		if err != nil {
			t.Fatal(err)
		}
		harness.Finds(t, report, "failover", want, words...)
	}
	each := func(want inspect.Verdict, words ...string) {
		t.Helper()
		for i, url := range []string{primary.URL(), unprivileged} {
			finding(harness.Drivers[i], url, want, words)
		}
	}

	each(inspect.Warning, "2 standbys; asynchronous")
	primary.Synchronous("ANY 1 (b, c)")
	inStep(t, primary, 2)
	each(inspect.Warning, "1 of 2 standbys confirms a commit")
	primary.Synchronous("ANY 2 (b, c)")
	inStep(t, primary, 2)
	each(inspect.OK, "2 standbys; synchronous_standby_names ANY 2 (b, c); synchronous_commit on, the default")
	primary.Synchronous("ANY 3 (b, c, d)")
	each(inspect.Warning, "Commits that wait for 3 standbys do not end")

	primary.Synchronous("FIRST 2 (b, c)")
	inStep(t, primary, 2)
	local := harness.WithParameter(t, unprivileged, "options", "-c synchronous_commit=local")
	finding(harness.Drivers[1], local, inspect.Warning, []string{"Commits of this role do not wait for a standby", "set in the connection string"})
	finding(harness.Drivers[0], unprivileged, inspect.Warning, []string{"For up to 4.75s"}, inspect.PromotedAfter(5*time.Second))
	finding(harness.Drivers[0], unprivileged, inspect.OK, nil, inspect.PromotedAfter(5*time.Second), inspect.Failover(8*time.Second))

	report, err := inspect.Check(t.Context(), harness.Drivers[0].Open(t, standby.URL()).DB)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := report.Finding("failover"); ok {
		t.Errorf("on a standby: %v", f)
	}
}

// inStep waits until the primary counts n standbys as confirming.
func inStep(t *testing.T, primary *harness.Node, n int) {
	t.Helper()
	harness.Eventually(t, "the standbys confirm commits", func() bool {
		return harness.Ask[int](t, primary.Watch, "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')") == n
	})
}
