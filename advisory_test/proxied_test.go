package advisory_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

// eachDriverProxied is eachDriver with a proxy between the pool and the server. What
// counts locks goes past it.
func eachDriverProxied(t *testing.T, test func(t *testing.T, p *pool, link *proxy.Proxy)) {
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			p, link := d.proxied(t, pgtest.URL(t))
			test(t, p, link)
		})
	}
}

// proxied opens a pool whose connections go through a proxy of their own.
func (d driver) proxied(t testing.TB, serverURL string) (*pool, *proxy.Proxy) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	link := proxy.New(t, u.Host)
	p := d.open(t, link.URL(serverURL))
	p.url = serverURL
	t.Cleanup(link.Thaw) // before the pool is closed
	return p, link
}

// withParameter adds a parameter to a postgres:// URL.
func withParameter(t testing.TB, serverURL, name, value string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a space, to newer versions of pgx
	return u.String()
}
