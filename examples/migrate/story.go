package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/examples/internal/stage"
)

// cents is the sum of the balances if they were multiplied once.
const cents = 1000 * 1001 / 2 * 100

// direct is the first process: it makes the others migrate, reads the result from the server, and
// prints what happened.
func direct(ctx context.Context, s *stage.Stage) error {
	processes, err := s.Cast(ctx, "process-1", "process-2", "process-3", "process-4", "process-5")
	if err != nil {
		return err
	}
	var version string
	if err := s.DB.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version); err != nil {
		return err
	}
	fmt.Printf("Five processes, one migration: advisory lock %v, which is Name(\"bank\", \"migrations\"), PostgreSQL %s\n", migrations, version)
	st := &story{Stage: s, processes: processes}

	if err := st.act(ctx, "three steps", "each is made by one process, the others wait and skip it"); err != nil {
		return err
	}
	st.wants(schema{Version: 3, Rows: 3, Steps: 3, Cents: cents})

	if err := st.act(ctx, "broken step", "each process tries it in turn and prints why it fails"); err != nil {
		return err
	}
	st.wants(schema{Version: 3, Rows: 3, Steps: 3, Cents: cents})

	if err := st.act(ctx, "repaired step", "made once, from the start"); err != nil {
		return err
	}
	st.wants(schema{Version: 4, Rows: 4, Steps: 4, Cents: cents, Login: true})

	if err := stage.End(processes...); err != nil {
		return err
	}
	if len(st.faults) > 0 {
		return errors.Join(st.faults...)
	}
	fmt.Println("\nevery step was made once, and the failed one left nothing behind")
	return nil
}

// A story is the state of the program between the acts.
type story struct {
	*stage.Stage
	processes []*stage.Process
	acts      int
	schema    schema // at the end of the act
	faults    []error
}

func (s *story) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

// act makes all processes migrate at the same moment, and prints the results.
func (s *story) act(ctx context.Context, name, what string) error {
	s.acts++
	fmt.Printf("\nact %d, %s: %s\n", s.acts, name, what)
	if err := stage.Tell(name, s.processes...); err != nil {
		return err
	}
	failed := 0
	for _, p := range s.processes {
		said, err := p.Hear(ctx)
		if err != nil {
			return err
		}
		if strings.HasPrefix(said, "failed") {
			failed++
		}
		fmt.Printf("  %s  %s\n", p.Name, said)
	}
	want := 0
	if name == "broken step" {
		want = len(s.processes)
	}
	if failed != want {
		s.fault("act %d: %d processes failed, not %d", s.acts, failed, want)
	}
	var err error
	s.schema, err = readSchema(ctx, s.DB)
	return err
}

// wants compares the schema with the expected one.
func (s *story) wants(want schema) {
	fmt.Printf("  the server: schema version %d, %d rows in schema_version, %s, %d advisory locks\n",
		s.schema.Version, s.schema.Rows, map[bool]string{false: "no login column", true: "a login column"}[s.schema.Login], s.schema.Locks)
	if s.schema != want {
		s.fault("act %d: the server has %+v, not %+v", s.acts, s.schema, want)
	}
}
