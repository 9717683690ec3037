package failover_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/failover"
)

// stated are figures that texts state, with what they must be. Each group of the pattern is a number of
// seconds, of which the first may be the failover time.
var stated = []struct {
	file, pattern string
	times         int // how often the file has it, at least
	want          func(given []float64) []float64
}{
	{"docs/guarantees.md", `(?m)^\| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \|$`, 2, func(given []float64) []float64 {
		ts := failover.Of(seconds(given[0]), failover.DefaultHeartbeat)
		return []float64{given[0], ts.Heartbeat.Seconds(), ts.UserTimeout.Seconds(), ts.Deadline.Seconds()}
	}},
	{"docs/guarantees.md", `after the last answered ping was sent,\s+([\d.]+) s by default`, 1, byDefault(func(ts failover.Times) time.Duration { return ts.Deadline })},
	{"docs/guarantees.md", `8 s old, or half of D \(G5\): ([\d.]+) s by default`, 1, byDefault(func(ts failover.Times) time.Duration {
		return ts.Slice.Round(100 * time.Millisecond)
	})},
	{"docs/guarantees.md", `within the failover time,\s+([\d.]+) s by default`, 1, byDefault(func(ts failover.Times) time.Duration { return ts.Failover })},
	{"docs/cli.md", `F = ([\d.]+) s, U = ([\d.]+) s, and the margin is ([\d.]+) s`, 1, func([]float64) []float64 {
		ts := failover.Of(failover.Default, failover.DefaultHeartbeat)
		return []float64{ts.Failover.Seconds(), ts.UserTimeout.Seconds(), failover.Margin(failover.Default).Seconds()}
	}},
	{"cmd/pgadvisory/run.go", `in whole seconds, ([\d.]+) s by default`, 1, func([]float64) []float64 {
		return []float64{failover.Margin(failover.Default).Seconds()}
	}},
	{"cmd/pgadvisory/run.go", `the lock is free; at least ([\d.]+), by default ([\d.]+)"`, 1, func([]float64) []float64 {
		return []float64{failover.Min.Seconds(), failover.Default.Seconds()}
	}},
	{"docs/failover.md", `By default F is ([\d.]+) s and D is ([\d.]+) s`, 1, func([]float64) []float64 {
		return []float64{failover.Default.Seconds(), failover.Of(failover.Default, failover.DefaultHeartbeat).Deadline.Seconds()}
	}},
	{"docs/failover.md", `F = ([\d.]+) s, so D = ([\d.]+) s`, 1, func(given []float64) []float64 {
		return []float64{given[0], failover.Of(seconds(given[0]), failover.DefaultHeartbeat).Deadline.Seconds()}
	}},
	{"docs/failover.md", `(?m)^\| ([\d.]+) s \| ([\d.]+) s \| [\d,]+ \| [\d.]+ MB \|$`, 3, func(given []float64) []float64 {
		return []float64{given[0], failover.Of(seconds(given[0]), failover.DefaultHeartbeat).Beat.Seconds()}
	}},
	{"locker/standby.go", `within the deadline,\s+(?://\s+)?([\d.]+) s by default`, 1, byDefault(func(ts failover.Times) time.Duration { return ts.Deadline })},
	{"locker/option.go", `is free again\. It is ([\d.]+) s\s+(?://\s+)?by default, and from ([\d.]+) s to 9 h`, 1, func([]float64) []float64 {
		return []float64{failover.Default.Seconds(), failover.Min.Seconds()}
	}},
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func byDefault(what func(failover.Times) time.Duration) func([]float64) []float64 {
	return func([]float64) []float64 {
		return []float64{what(failover.Of(failover.Default, failover.DefaultHeartbeat)).Seconds()}
	}
}

func TestGuaranteesStateTheseFigures(t *testing.T) {
	for _, s := range stated {
		text, err := os.ReadFile("../../" + s.file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(s.pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < s.times {
			t.Errorf("%s states %q %d times, want %d: change the pattern with the text", s.file, s.pattern, len(found), s.times)
		}
		for _, f := range found {
			given := make([]float64, len(f)-1)
			for i, number := range f[1:] {
				given[i], _ = strconv.ParseFloat(number, 64)
			}
			for i, want := range s.want(given) {
				if f[i+1] != "" && given[i] != want {
					t.Errorf("%s: %q: %v, want %v", s.file, f[0], given[i], want)
				}
			}
		}
	}
}
