package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// The test binary is pgadvisory, too, where it is called so; testscript puts it into PATH.
func TestMain(m *testing.M) {
	testscript.Main(closing{m}, map[string]func(){"pgadvisory": main})
}

// closing closes the servers when the tests have run.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	if pgtest.Shutdown() != nil {
		return max(code, 1)
	}
	return code
}
