package inprocess_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/inprocess"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A configuration chooses the Locker. The code that takes locks does not know which it has.
func Example() {
	lockerOf := func(db *sql.DB, single bool) advisory.Locker {
		if single {
			return inprocess.New()
		}
		return locker.New(db)
	}
	locks := lockerOf(nil, true)
	ran, err := locks.TryDo(context.Background(), advisory.Name("nightly"), func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		fmt.Println("works under", lock.Key() == advisory.Name("nightly"))
		return nil
	})
	fmt.Println(ran, err)
	// Output:
	// works under true
	// true <nil>
}
