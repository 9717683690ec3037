package harness

import (
	"net/url"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

// EachDriverProxied is eachDriver with a proxy between the pool and the server. What
// counts locks goes past it.
func EachDriverProxied(t *testing.T, test func(t *testing.T, p *Pool, link *proxy.Proxy)) {
	for _, d := range Drivers {
		t.Run(d.Name, func(t *testing.T) {
			p, link := d.Proxied(t, pgtest.URL(t))
			test(t, p, link)
		})
	}
}

// Proxied opens a pool whose connections go through a proxy of their own.
func (d Driver) Proxied(t testing.TB, serverURL string) (*Pool, *proxy.Proxy) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	link := proxy.New(t, u.Host)
	p := d.Open(t, link.URL(serverURL))
	p.Url = serverURL
	t.Cleanup(link.Thaw) // before the pool is closed
	return p, link
}

// WithParameter adds a parameter to a postgres:// URL.
func WithParameter(t testing.TB, serverURL, name, value string) string {
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
