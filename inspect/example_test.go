package inspect_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
)

var (
	ctx context.Context
	db  *sql.DB // sql.Open("postgres", url), with the driver of your choice
)

// The page of all locks, on a mux that only operators reach.
func ExampleHandler() {
	debug := http.NewServeMux()
	debug.Handle("/debug/locks", inspect.Handler(db))
	log.Fatal(http.ListenAndServe("localhost:6060", debug))
}

// A follower prints its leader.
func ExampleHolders() {
	holders, err := inspect.Holders(ctx, db, advisory.Name("billing", "leader"))
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range holders {
		fmt.Println("the leader is", h.Application, "at", h.Client)
	}
}

// Print the waits that have lasted longer than a minute.
func ExampleLocks() {
	locks, err := inspect.Locks(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range locks {
		if !l.Granted && l.Age > time.Minute {
			fmt.Println(l)
		}
	}
}

// Print what looks like an incident, with what to do.
func ExampleSuspects() {
	suspects, err := inspect.Suspects(ctx, db, inspect.After(10*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range suspects {
		fmt.Println(s)
	}
}

// A line for a log or a terminal.
func ExampleLock_String() {
	l := inspect.Lock{
		Key: advisory.Pair(7, 12), Granted: true, PID: 812, User: "app", Application: "billing", Client: "10.0.0.7:50412",
		State: "idle", StateAge: 12 * time.Second, WaitedForBy: []int{901},
	}
	fmt.Println(l)
	l.Client, l.State, l.StateAge, l.Hidden = "", "", 0, []string{"client", "state", "state_age"}
	fmt.Println(l)
	// Output:
	// 7:12 exclusive, held by pid 812, user app, application billing, client 10.0.0.7:50412, idle for 12s, pid 901 waits for it
	// 7:12 exclusive, held by pid 812, user app, application billing, pid 901 waits for it (this role may not see: client, state, state_age)
}
