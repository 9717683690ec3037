package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/surface"
)

// The compiler refuses what is out of place, so that no error at run time has to. Each statement below is compiled in
// the body of a function of these parameters.
const statementParameters = `
	ctx context.Context, second time.Duration,
	db *sql.DB, conn *sql.Conn, tx *sql.Tx,
	key advisory.Key, l advisory.Locker, sem *locker.Semaphore, observer advisory.Observer`

func TestWhatIsInPlaceCompiles(t *testing.T) {
	for _, statement := range []string{
		`var _ advisory.ConnOption = advisory.Label("account")`,
		`var _ advisory.TxOption = advisory.Label("account")`,
		`l.TryLock(ctx, key, advisory.Shared, advisory.MaxWait(second), advisory.Label("account"), advisory.WithObserver(observer))`,
		`sqlconn.TryLock(ctx, conn, key, advisory.Shared, advisory.MaxWait(second), advisory.Label("account"), advisory.WithObserver(observer))`,
		`sqlconn.TryDo(ctx, db.Conn, key, func(context.Context, *sql.Conn) error { return nil }, advisory.Shared)`,
		`sqlconn.Lock(ctx, conn, key, sqlconn.PlainWait())`,
		`l.Do(ctx, key, nil, locker.HoldAtLeast(second))`,
		`sem.Acquire(ctx, advisory.MaxWait(second), advisory.Label("slot"), advisory.WithObserver(observer), locker.HoldAtLeast(second))`,
		`sem.TryAcquire(ctx, advisory.MaxWait(second), advisory.Label("slot"), advisory.WithObserver(observer), locker.HoldAtLeast(second))`,
		`sem.Do(ctx, nil, advisory.MaxWait(second), advisory.Label("slot"), advisory.WithObserver(observer), locker.HoldAtLeast(second))`,
		`sem.TryDo(ctx, nil, advisory.MaxWait(second), advisory.Label("slot"), advisory.WithObserver(observer), locker.HoldAtLeast(second))`,
		`l = locker.New(db, advisory.WithObserver(observer), locker.WithFencing(), locker.WithFailover(second))`,
		`l = locker.New(db, advisory.WithWaitingAfter(second))`,
		`l.Do(ctx, key, nil, advisory.WithWaitingAfter(second), advisory.HoldersTo(nil))`,
		`sem.TryDo(ctx, nil, advisory.WithWaitingAfter(second), advisory.HoldersTo(nil))`,
		`sqlconn.TryLock(ctx, conn, key, advisory.WithWaitingAfter(second), advisory.HoldersTo(nil))`,
		`xact.TryLock(ctx, tx, key, advisory.WithWaitingAfter(second), advisory.HoldersTo(nil))`,
		`xact.TryDo(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil }, advisory.WithWaitingAfter(second), advisory.HoldersTo(nil))`,
		`l = inprocess.New(advisory.WithObserver(observer), advisory.WithWaitingAfter(second))`,
		`l = locktest.New()`,
		`locktest.New().Occupy(key, advisory.Shared, advisory.Label("account"))`,
		`xact.TryLock(ctx, tx, key, advisory.Shared, advisory.MaxWait(second), advisory.Label("account"), advisory.WithObserver(observer))`,
		`xact.TryLock(ctx, tx, key, xact.AnyIsolation())`,
		`xact.TryDo(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil }, xact.TxOptions(&sql.TxOptions{}))`,
		`xact.Do(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil },
			xact.TxOptions(&sql.TxOptions{}), xact.AnyIsolation(), advisory.Shared, advisory.MaxWait(second), advisory.Label("account"), advisory.WithObserver(observer))`,
		`xact.TryDo(ctx, conn.BeginTx, key, func(context.Context, *sql.Tx) error { return nil })`,
	} {
		if errs := compileStatement(t, statement); len(errs) > 0 {
			t.Errorf("%s\n%v", statement, errs)
		}
	}
}

func TestWhatIsOutOfPlaceDoesNotCompile(t *testing.T) {
	for _, v := range []struct{ statement, want string }{
		{`l.TryLock(ctx, key, xact.AnyIsolation())`, "does not implement advisory.LockerOption"},
		{`l.Do(ctx, key, nil, xact.TxOptions(nil))`, "does not implement advisory.LockerOption"},
		{`sqlconn.TryLock(ctx, conn, key, xact.AnyIsolation())`, "does not implement advisory.ConnOption"},
		{`sqlconn.Lock(ctx, conn, key, xact.TxOptions(nil))`, "does not implement advisory.ConnOption"},
		{`sqlconn.Unlock(ctx, conn, key, xact.AnyIsolation())`, "does not implement advisory.ConnOption"},
		{`xact.TryLock(ctx, tx, key, sqlconn.PlainWait())`, "does not implement advisory.TxOption"},
		{`xact.LockAll(ctx, tx, []advisory.Key{key}, sqlconn.PlainWait())`, "does not implement advisory.TxOption"},
		{`xact.TryLock(ctx, tx, key, locker.HoldAtLeast(second))`, "does not implement advisory.TxOption"},
		{`xact.LockAll(ctx, tx, []advisory.Key{key}, locker.HoldAtLeast(second))`, "does not implement advisory.TxOption"},
		{`xact.Do(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil }, locker.HoldAtLeast(second))`, "does not implement xact.BeginOption"},
		{`var _ advisory.Option = sqlconn.PlainWait()`, "does not implement advisory.Option"},
		{`var _ advisory.Option = locker.HoldAtLeast(second)`, "does not implement advisory.Option"},
		{`var _ advisory.Option = xact.AnyIsolation()`, "does not implement advisory.Option"},
		{`l = locker.New(db, advisory.HoldersTo(nil))`, "does not implement locker.Option"},
		{`l = inprocess.New(advisory.HoldersTo(nil))`, "does not implement advisory.ObserverOption"},
		{`l = inprocess.New(locker.WithFencing())`, "does not implement advisory.ObserverOption"},
		{`var _ advisory.ObserverOption = advisory.Shared`, "does not implement advisory.ObserverOption"},

		// TxOptions are for a transaction to begin.
		{`xact.Lock(ctx, tx, key, xact.TxOptions(nil))`, "does not implement advisory.TxOption"},
		{`xact.TryLock(ctx, tx, key, xact.TxOptions(nil))`, "does not implement advisory.TxOption"},
		{`xact.LockAll(ctx, tx, []advisory.Key{key}, xact.TxOptions(nil))`, "does not implement advisory.TxOption"},
		{`xact.TryLockAll(ctx, tx, []advisory.Key{key}, xact.TxOptions(nil))`, "does not implement advisory.TxOption"},
		{`xact.TryLockAny(ctx, tx, []advisory.Key{key}, xact.TxOptions(nil))`, "does not implement advisory.TxOption"},

		// HoldAtLeast is for a Locker and a Semaphore, whose slots are exclusive.
		{`sqlconn.Lock(ctx, conn, key, locker.HoldAtLeast(second))`, "does not implement advisory.ConnOption"},
		{`sqlconn.TryLock(ctx, conn, key, locker.HoldAtLeast(second))`, "does not implement advisory.ConnOption"},
		{`sqlconn.Unlock(ctx, conn, key, locker.HoldAtLeast(second))`, "does not implement advisory.ConnOption"},
		{`sqlconn.Do(ctx, db.Conn, key, func(context.Context, *sql.Conn) error { return nil }, locker.HoldAtLeast(second))`, "does not implement advisory.ConnOption"},
		{`sqlconn.TryDo(ctx, db.Conn, key, func(context.Context, *sql.Conn) error { return nil }, locker.HoldAtLeast(second))`, "does not implement advisory.ConnOption"},
		{`sem.Acquire(ctx, advisory.Shared)`, "does not implement advisory.SemaphoreOption"},
		{`sem.TryAcquire(ctx, advisory.Shared)`, "does not implement advisory.SemaphoreOption"},
		{`sem.Do(ctx, nil, advisory.Shared)`, "does not implement advisory.SemaphoreOption"},
		{`sem.TryDo(ctx, nil, advisory.Shared)`, "does not implement advisory.SemaphoreOption"},
		{`sem.Acquire(ctx, xact.AnyIsolation())`, "does not implement advisory.SemaphoreOption"},

		// PlainWait is for a connection of the caller's.
		{`l.Lock(ctx, key, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`l.Do(ctx, key, nil, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`l.(*locker.Locker).LockAll(ctx, []advisory.Key{key}, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`l.(*locker.Locker).LockAny(ctx, []advisory.Key{key}, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`l.(*locker.Locker).Lead(ctx, key, nil, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`l.(*locker.Locker).Wrap(key, nil, sqlconn.PlainWait())`, "does not implement advisory.LockerOption"},
		{`sem.Acquire(ctx, sqlconn.PlainWait())`, "does not implement advisory.SemaphoreOption"},

		// What is for a call is not for a Locker, nor the other way round.
		{`locker.New(db, advisory.Shared)`, "does not implement locker.Option"},
		{`locker.New(db, advisory.MaxWait(second))`, "does not implement locker.Option"},
		{`locker.New(db, advisory.Label("account"))`, "does not implement locker.Option"},
		{`locker.New(db, locker.HoldAtLeast(second))`, "does not implement locker.Option"},
		{`locker.New(db, sqlconn.PlainWait())`, "does not implement locker.Option"},
		{`locker.New(db, xact.AnyIsolation())`, "does not implement locker.Option"},
		{`l.TryLock(ctx, key, locker.WithFencing())`, "does not implement advisory.LockerOption"},
		{`l.Do(ctx, key, nil, locker.WithFailover(second))`, "does not implement advisory.LockerOption"},
		{`sqlconn.Lock(ctx, conn, key, locker.WithMaxConns(2))`, "does not implement advisory.ConnOption"},
		{`xact.Lock(ctx, tx, key, locker.WithHeartbeat(second))`, "does not implement advisory.TxOption"},
		{`sem.Acquire(ctx, locker.WithFencing())`, "does not implement advisory.SemaphoreOption"},
		{`sqlconn.TryLock(ctx, conn, key, locker.WithApplicationName("x"))`, "does not implement advisory.ConnOption"},
		{`xact.Do(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil }, locker.WithoutServerCheck())`, "does not implement xact.BeginOption"},
		{`locktest.New().Occupy(key, locker.HoldAtLeast(second))`, "does not implement advisory.Option"},

		// A pool is no session, and no transaction; nor is one the other.
		{`sqlconn.TryLock(ctx, db, key)`, "*sql.DB does not implement sqlconn.Conn"},
		{`sqlconn.TryLock(ctx, tx, key)`, "*sql.Tx does not implement sqlconn.Conn"},
		{`xact.TryLock(ctx, db, key)`, "*sql.DB does not implement xact.Tx"},
		{`xact.TryLock(ctx, conn, key)`, "*sql.Conn does not implement xact.Tx"},
		{`locker.New(conn)`, "conn"},
		{`locker.New(tx)`, "tx"},
		{`xact.TryDo(ctx, db.Conn, key, func(context.Context, *sql.Tx) error { return nil })`, "db.Conn"},

		// A number is not a key before somebody says in which space.
		{`l.TryLock(ctx, 4820)`, "4820"},
	} {
		errs := compileStatement(t, v.statement)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), v.want) {
			t.Errorf("%s\n%v\nwant one error with %q", v.statement, errs, v.want)
		}
	}
}

// compileStatement type-checks a program around the statement.
func compileStatement(t *testing.T, statement string) (errs []error) {
	t.Helper()
	built, err := exportFiles()
	if err != nil {
		t.Fatal(err)
	}
	var src bytes.Buffer
	fmt.Fprintln(&src, "package program")
	for _, path := range []string{"context", "database/sql", "time", modulePath + "/advisory", modulePath + "/advisory/inprocess", modulePath + "/advisory/locktest", modulePath + "/sqlconn", modulePath + "/locker", modulePath + "/xact"} {
		name := path[strings.LastIndex(path, "/")+1:]
		if !strings.Contains(statementParameters+statement, name+".") {
			continue
		}
		fmt.Fprintf(&src, "import %q\n", path)
	}
	fmt.Fprintf(&src, "func _(%s) {\n%s\n}\n", statementParameters, statement)

	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "program.go", &src, 0)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(built[path]) }),
		Error:    func(err error) { errs = append(errs, err) },
	}
	config.Check("program", fset, []*ast.File{file}, nil)
	return errs
}

// exportFiles returns the files with what the packages export, which the go tool compiles once.
var exportFiles = sync.OnceValues(func() (map[string]string, error) {
	return surface.ExportFiles(modulePath+"/advisory", modulePath+"/advisory/inprocess", modulePath+"/advisory/locktest",
		modulePath+"/sqlconn", modulePath+"/locker", modulePath+"/xact")
})
