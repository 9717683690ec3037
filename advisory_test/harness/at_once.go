package harness

import (
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// EachDriverAtOnce is eachDriver, with all drivers at the same time, however few
// processors there are. It is for tests that spend their time waiting.
func EachDriverAtOnce(t *testing.T, test func(t *testing.T, p *Pool)) {
	EachAtOnce(t, pgtest.URL, test)
}

// EachAtOnce has the database of each driver made by url.
func EachAtOnce(t *testing.T, url func(t testing.TB) string, test func(t *testing.T, p *Pool)) {
	var urls []string
	for range Drivers {
		urls = append(urls, url(t))
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, d := range Drivers {
		wg.Go(func() {
			t.Run(d.Name, func(t *testing.T) { test(t, d.Open(t, urls[i])) })
		})
	}
}
