package recipes_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

const partitionsURL = "PGADVISORY_RECIPES_PARTITIONS"

type processor func(ctx context.Context, tx *sql.Tx, id int32) error

// doPartitions does partitions until all are done. Any number of processes may run it.
func doPartitions(ctx context.Context, db *sql.DB, process processor) error {
	for {
		left, worked, err := doOne(ctx, db, process)
		if err != nil || !left {
			return err
		}
		if !worked {
			time.Sleep(100 * time.Millisecond) // others work on what is left
		}
	}
}

func doOne(ctx context.Context, db *sql.DB, process processor) (left, worked bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, false, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, "SELECT id FROM partitions WHERE NOT done ORDER BY random() LIMIT 32")
	if err != nil {
		return false, false, err
	}
	defer rows.Close()
	var keys []advisory.Key
	for rows.Next() {
		var id int32
		if err := rows.Scan(&id); err != nil {
			return false, false, err
		}
		keys = append(keys, advisory.Pair(4820, id))
	}
	if err := rows.Err(); err != nil || len(keys) == 0 {
		return false, false, err
	}
	key, ok, err := xact.TryLockAny(ctx, tx, keys)
	if err != nil || !ok {
		return true, false, err
	}
	_, id, _ := key.Pair()
	mark, err := tx.ExecContext(ctx, "UPDATE partitions SET done = true WHERE id = $1 AND NOT done", id)
	if err != nil {
		return true, false, err
	}
	if n, err := mark.RowsAffected(); err != nil || n == 0 { // another has done it since the SELECT
		return true, true, err
	}
	if err := process(ctx, tx, id); err != nil {
		return true, false, err
	}
	return true, true, tx.Commit()
}

// partitionsProcess is a worker's process. If it is to die, it does so at its 20th partition.
func partitionsProcess(url string) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	name := os.Getenv("WORKER")
	n := 0
	return doPartitions(context.Background(), db, func(ctx context.Context, tx *sql.Tx, id int32) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO results VALUES ($1, $2)", id, name)
		if n++; n == 20 && name == "dies" {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return err
	})
}

// All 1,000 partitions are done exactly once by workers of which one dies.
func TestPartitionsOfWhichAWorkerDies(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, "postgres", url)
	if _, err := db.Exec(`CREATE TABLE partitions (id int PRIMARY KEY, done bool NOT NULL DEFAULT false);
		CREATE TABLE results (id int, worker text);
		INSERT INTO partitions SELECT generate_series(1, 1000)`); err != nil {
		t.Fatal(err)
	}
	start := func(name string) (*exec.Cmd, *strings.Builder) {
		var out strings.Builder
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), partitionsURL+"="+url, "WORKER="+name)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	dies, _ := start("dies")
	one, oneSays := start("one")
	two, twoSays := start("two")
	if err := dies.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the worker that dies: %v", err)
	}
	if err := one.Wait(); err != nil {
		t.Errorf("%v: %s", err, oneSays)
	}
	if err := two.Wait(); err != nil {
		t.Errorf("%v: %s", err, twoSays)
	}
	var results, partitions, done, ofTheDead int
	if err := db.QueryRow(`SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE worker = 'dies'),
		(SELECT count(*) FROM partitions WHERE done) FROM results`).Scan(&results, &partitions, &ofTheDead, &done); err != nil {
		t.Fatal(err)
	}
	if results != 1000 || partitions != 1000 || done != 1000 || ofTheDead != 19 {
		t.Errorf("%d results of %d partitions, %d marked; %d by the one that died", results, partitions, done, ofTheDead)
	}
}
