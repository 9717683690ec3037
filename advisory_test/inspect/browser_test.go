package inspect_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A browser is Chromium, without a window, whose only way out is a proxy of ours: it
// answers for one site and takes note of whatever else is asked for.
type browser struct {
	program string
	proxy   *httptest.Server
	site    http.Handler

	mu        sync.Mutex
	asked     []string // of the site: method and path
	elsewhere []string
}

const browserSite = "pgadvisory.test"

// newBrowser skips the test where there is no Chromium.
func newBrowser(t *testing.T, site http.Handler) *browser {
	t.Helper()
	b := &browser{site: site}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if program, err := exec.LookPath(name); err == nil {
			b.program = program
			break
		}
	}
	if b.program == "" {
		t.Skip("needs Chromium or Google Chrome: on Debian, apt-get install chromium")
	}
	b.proxy = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.proxy.Close)
	return b
}

func (b *browser) serve(w http.ResponseWriter, r *http.Request) {
	host := r.URL.Hostname()
	own := strings.HasSuffix(host, ".google.com") || strings.HasSuffix(host, ".googleapis.com") // Chromium's own, on no page's behalf
	here := r.Method != http.MethodConnect && r.URL.Host == browserSite
	b.mu.Lock()
	if here {
		b.asked = append(b.asked, r.Method+" "+r.URL.RequestURI())
	} else if !own {
		b.elsewhere = append(b.elsewhere, r.Method+" "+r.URL.String()+" "+r.Host)
	}
	b.mu.Unlock()
	if !here {
		http.Error(w, "elsewhere", http.StatusForbidden)
		return
	}
	b.site.ServeHTTP(w, r)
}

// A sight is what a browser made of a page.
type sight struct {
	dom       string
	console   []string // what it complained of
	asked     []string // of the site
	elsewhere []string
}

var consoleLine = regexp.MustCompile(`(?m)^.*:CONSOLE[:(].*$`)

// see opens a page of the site. With arguments such as --screenshot it does that instead
// of telling the DOM.
func (b *browser) see(t *testing.T, path string, args ...string) sight {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	if len(args) == 0 {
		args = []string{"--dump-dom"}
	}
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
		"--disable-dev-shm-usage", "--disable-domain-reliability", "--disable-features=OptimizationHints,MediaRouter,Translate",
		"--enable-logging=stderr", "--user-data-dir=" + filepath.Join(home, "profile"),
		"--proxy-server=" + b.proxy.URL, "--proxy-bypass-list=<-loopback>",
	}, args...)
	cmd := exec.CommandContext(ctx, b.program, append(args, "http://"+browserSite+path)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	b.mu.Lock()
	b.asked, b.elsewhere = nil, nil
	b.mu.Unlock()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", b.program, err, &stderr)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return sight{
		dom:       stdout.String(),
		console:   consoleLine.FindAllString(stderr.String(), -1),
		asked:     slices.Clone(b.asked),
		elsewhere: slices.Clone(b.elsewhere),
	}
}
