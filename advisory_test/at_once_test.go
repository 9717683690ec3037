package advisory_test

import (
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// eachDriverAtOnce is eachDriver, with all drivers at the same time, however few
// processors there are. It is for tests that spend their time waiting.
func eachDriverAtOnce(t *testing.T, test func(t *testing.T, p *pool)) {
	eachAtOnce(t, pgtest.URL, test)
}

// eachAtOnce has the database of each driver made by url.
func eachAtOnce(t *testing.T, url func(t testing.TB) string, test func(t *testing.T, p *pool)) {
	var urls []string
	for range drivers {
		urls = append(urls, url(t))
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, d := range drivers {
		wg.Go(func() {
			t.Run(d.name, func(t *testing.T) { test(t, d.open(t, urls[i])) })
		})
	}
}
