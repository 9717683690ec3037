package house_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Only a race detector that died itself is tried again, once: no race, and no other failure.
func TestOnlyADeadRaceDetectorIsTriedAgain(t *testing.T) {
	const died = `echo "ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346"; exit 66`
	for name, c := range map[string]struct {
		first, second string
		ok            bool
		runs          int
	}{
		"it passes":            {"true", "true", true, 1},
		"it fails":             {"echo FAIL; false", "true", false, 1},
		"a race":               {`echo "WARNING: DATA RACE"; exit 66`, "true", false, 1},
		"it dies once":         {died, "true", true, 2},
		"it dies, then a race": {died, "exit 66", false, 2},
		"it dies twice":        {died, died, false, 2},
		"a text, and it passes": {
			`echo "ThreadSanitizer: CHECK failed"`, "false", true, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			script := `echo run; if [ -e ` + ran + ` ]; then ` + c.second + `; else touch ` + ran + `; ` + c.first + `; fi`
			out, err := exec.Command("../../scripts/raced.sh", "sh", "-c", script).CombinedOutput()
			if n := strings.Count(string(out), "run\n"); (err == nil) != c.ok || n != c.runs {
				t.Errorf("%v after %d runs:\n%s", err, n, out)
			}
		})
	}
}
