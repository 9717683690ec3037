package recipes_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

const leaderURL = "PGADVISORY_RECIPES_LEADER"

// lead runs job while this pod leads, and returns after SIGTERM.
func lead(db *sql.DB, mux *http.ServeMux, job func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := locker.New(db)
	defer l.Close()

	key := advisory.Name("billing", "leader")
	var working atomic.Bool
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if working.Load() && !l.Holds(key) { // the lock is lost, and the job has not returned
			http.Error(w, "works without the lock", http.StatusServiceUnavailable)
		}
	})
	return l.Lead(ctx, key, func(ctx context.Context) error {
		working.Store(true)
		defer working.Store(false)
		return job(ctx) // returns when ctx ends: after SIGTERM, or if the lock is lost
	})
}

// leaderProcess is a pod. Its job prints when it begins, and after the loss of its first lock goes on
// until there is a line to read.
func leaderProcess(url string) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	fmt.Println(server.URL)
	terms := 0
	err = lead(db, mux, func(ctx context.Context) error {
		fmt.Println("begins")
		<-ctx.Done()
		if terms++; terms == 1 {
			fmt.Scanln()
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Println("has shut down")
	return nil
}

func TestKubernetesLeader(t *testing.T) {
	url := pgtest.URL(t)
	pod := exec.CommandContext(t.Context(), os.Args[0])
	pod.Env = append(os.Environ(), leaderURL+"="+url)
	pod.Stderr = os.Stderr
	in, err := pod.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := pod.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func() string { lines.Scan(); return lines.Text() }
	expect := func(want string) {
		t.Helper()
		if got := says(); got != want {
			t.Fatalf("the pod says %q, not %q", got, want)
		}
	}
	address := says()
	healthy := func() bool {
		t.Helper()
		answer, err := http.Get(address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}

	expect("begins")
	if !healthy() {
		t.Error("a leader is not healthy")
	}
	terminateHolders(t, url)
	harness.Eventually(t, "a job that outlives its lock is not healthy", func() bool { return !healthy() })
	fmt.Fprintln(in)
	expect("begins")
	if !healthy() {
		t.Error("a leader is not healthy after it has the lock again")
	}

	l, key := newLocker(t, url), advisory.Name("billing", "leader")
	if lock, ok, err := l.TryLock(t.Context(), key); ok || err != nil {
		t.Error("two lead at once", lock.Key(), err)
	}
	if err := pod.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("has shut down")
	if lock, ok, err := l.TryLock(t.Context(), key); !ok || err != nil {
		t.Errorf("the lock is not free after a shutdown: %v", err)
	} else {
		lock.Unlock()
	}
	if err := pod.Wait(); err != nil {
		t.Error(err)
	}
}

// terminateHolders ends the sessions of a database that hold an advisory lock.
func terminateHolders(t *testing.T, url string) {
	t.Helper()
	var n int
	const terminate = `SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks
		WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`
	if err := open(t, "postgres", url).QueryRow(terminate).Scan(&n); err != nil || n == 0 {
		t.Fatal(n, err)
	}
}
