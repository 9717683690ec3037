package pgtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestRelease(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, goarch := range []string{"amd64", "arm64"} {
			if platform := platformOf(goos, goarch, false); len(checksums[platform]) != 64 {
				t.Errorf("%s has no checksum", platform)
			}
		}
	}
	if got := platformOf("linux", "arm64", true); got != "linux-arm64v8-alpine" {
		t.Errorf("with musl: %s", got)
	}

	vars := map[string]string{"XDG_CACHE_HOME": "/cache", "PGADVISORY_TEST_SHA256": strings.Repeat("0a", 32)}
	r, err := with(vars).release()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.url, "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-") || !strings.HasSuffix(r.url, "-17.11.0.jar") {
		t.Errorf("fetched from %s", r.url)
	}
	if dir := string(r.folder); filepath.Dir(dir) != "/cache/pgadvisory/embedded" || !strings.HasSuffix(dir, "-0a0a0a0a0a0a") {
		t.Errorf("kept in %s", dir)
	}

	vars["PGADVISORY_TEST_MAVEN"] = "http://mirror:8081/maven/"
	if r, err := with(vars).release(); err != nil || !strings.HasPrefix(r.url, "http://mirror:8081/maven/io/zonky/") {
		t.Errorf("from a mirror: %s, %v", r.url, err)
	}
	for _, sum := range []string{"0a", strings.Repeat("0A", 32), strings.Repeat("x", 64)} {
		vars["PGADVISORY_TEST_SHA256"] = sum
		if _, err := with(vars).release(); err == nil || !strings.Contains(err.Error(), "PGADVISORY_TEST_SHA256") {
			t.Errorf("%s is a checksum: %v", sum, err)
		}
	}
}

// repository serves an archive at every path, or at none, and counts the requests.
func repository(t *testing.T, archive []byte) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if archive == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
		w.Write(archive)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}
