package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Standby returns a server of the test's own that is a hot standby.
func Standby(t *testing.T) *pgtest.Server {
	t.Helper()
	server := pgtest.NewServer(t)
	if server.Kind() != "binaries" {
		t.Skip("the data folder of this server is out of reach")
	}
	p := Drivers[0].Open(t, server.URL())
	data := Ask[string](t, p, "SHOW data_directory")
	p.Close()
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	return server
}

func Third[A, B any](_ A, _ B, err error) error { return err }
