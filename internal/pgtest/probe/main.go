// Command probe prints which PostgreSQL server tests and examples use on this machine. If there is
// none, it prints what to do, and fails.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func main() {
	s, err := pgtest.Start(context.Background())
	if err == nil {
		v := s.Version()
		fmt.Println(strings.TrimSpace(fmt.Sprintf("PostgreSQL %d.%d, by %s %s", v/10000, v%10000, s.Kind(), s.BinDir())))
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
