package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/embedded/folder"
)

// fetchFrom is a fetch into a new cache folder from a server that answers with handler.
func fetchFrom(t *testing.T, sum string, handler http.HandlerFunc) fetch {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return fetch{
		url:    server.URL + "/postgres.jar",
		sha256: sum,
		to:     folder.Folder(filepath.Join(t.TempDir(), "pgadvisory", "embedded", "linux-amd64-0123456789ab")),
		client: server.Client(), patience: time.Minute, news: io.Discard,
	}
}

func serve(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(content) }
}

// leavesNothing checks that only the lock is in the cache folder.
func (f fetch) leavesNothing(t *testing.T) {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(string(f.to)), "*"))
	for _, name := range all {
		if name != string(f.to)+".lock" {
			t.Errorf("%s is left", name)
		}
	}
}

// fails checks that the fetch fails with an error that has all of the words, and leaves nothing.
func (f fetch) fails(t *testing.T, words ...string) {
	t.Helper()
	err := f.run(context.Background())
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not have %q", err, word)
		}
	}
	f.leavesNothing(t)
}

func (f fetch) succeeds(t *testing.T) {
	t.Helper()
	if err := f.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := f.to.Check(); err != nil {
		t.Error(err)
	}
}

func TestProgramsAreFetchedOnce(t *testing.T) {
	jar, sum := pack(t, programs...)
	var requests atomic.Int32
	f := fetchFrom(t, sum, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		serve(jar)(w, r)
	})
	var news bytes.Buffer
	f.news = &news
	f.succeeds(t)
	f.succeeds(t)
	if n := requests.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	line := news.String()
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, f.url) || !strings.Contains(line, " MB") || !strings.Contains(line, string(f.to)) {
		t.Errorf("news: %q", line)
	}

	for name, want := range map[string]string{
		"bin/postgres": "#!/bin/sh\necho postgres", "lib/libpq.so": "a library", "lib/libpq.so.5": "a library", "opt/local/lib/libpq.so": "a library",
	} {
		if got, err := os.ReadFile(filepath.Join(f.to.Programs(), name)); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"..", ".", "programs", "programs/bin", "programs/bin/postgres", "programs/share/postgresql"} {
		if info, err := os.Stat(filepath.Join(string(f.to), name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s cannot be used by everybody: %v, %v", name, info, err)
		}
	}
	all, err := os.ReadDir(string(f.to))
	if err != nil || len(all) != 2 {
		t.Errorf("the archive is kept: %v, %v", all, err)
	}
}

func TestRefusedDownloads(t *testing.T) {
	jar, sum := pack(t, programs...)
	t.Run("wrong checksum", func(t *testing.T) {
		changed := bytes.Clone(jar)
		changed[len(changed)/2]++
		f := fetchFrom(t, sum, serve(changed))
		f.fails(t, f.url, "checksum", sum, checksum(changed))
	})
	for _, status := range []int{http.StatusNotFound, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := fetchFrom(t, sum, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				w.Write(jar)
			})
			f.fails(t, f.url, http.StatusText(status))
		})
	}
	t.Run("no server", func(t *testing.T) {
		f := fetchFrom(t, sum, serve(jar))
		nowhere, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.url = "http://" + nowhere.Addr().String() + "/postgres.jar"
		nowhere.Close()
		f.fails(t, f.url, "connection refused")
	})
	t.Run("no URL", func(t *testing.T) {
		f := fetchFrom(t, sum, serve(jar))
		f.url = "ftp://127.0.0.1/postgres.jar"
		f.fails(t, f.url, "unsupported protocol")
	})
}

// After a broken connection the next try begins anew.
func TestHalfDownloadedArchive(t *testing.T) {
	jar, sum := pack(t, programs...)
	half := true
	f := fetchFrom(t, sum, func(w http.ResponseWriter, r *http.Request) {
		if !half {
			serve(jar)(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		answer := httptest.NewRecorder()
		answer.Write(jar)
		response := answer.Result()
		response.ContentLength = int64(len(jar))
		var all bytes.Buffer
		response.Write(&all)
		conn.Write(all.Bytes()[:all.Len()-len(jar)/2])
	})
	f.fails(t, f.url, "unexpected EOF")
	half = false
	f.succeeds(t)
}

// What a killed process left is removed, and a folder that is not complete is made anew.
func TestHalfUnpackedFolder(t *testing.T) {
	jar, sum := pack(t, programs...)
	for name, damage := range map[string]func(f fetch) error{
		"killed before the rename": func(f fetch) error {
			left := folder.Folder(string(f.to) + "-1234")
			if err := os.MkdirAll(left.Bin(), 0o700); err != nil {
				return err
			}
			return os.RemoveAll(string(f.to))
		},
		"a file is missing":   func(f fetch) error { return os.Remove(filepath.Join(f.to.Bin(), "postgres")) },
		"a link is missing":   func(f fetch) error { return os.Remove(filepath.Join(f.to.Programs(), "lib/libpq.so")) },
		"a file is empty":     func(f fetch) error { return os.Truncate(filepath.Join(f.to.Bin(), "postgres"), 0) },
		"programs are gone":   func(f fetch) error { return os.RemoveAll(f.to.Programs()) },
		"never been complete": func(f fetch) error { return os.Remove(filepath.Join(string(f.to), "size")) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fetchFrom(t, sum, serve(jar))
			f.succeeds(t)
			if err := damage(f); err != nil {
				t.Fatal(err)
			}
			if f.to.Check() == nil {
				t.Fatal("the damage is not seen")
			}
			f.succeeds(t)
			all, _ := filepath.Glob(string(f.to) + "-*")
			if len(all) > 0 {
				t.Errorf("left: %v", all)
			}
		})
	}
}

func TestTwoAtOnceDownloadOnce(t *testing.T) {
	jar, sum := pack(t, programs...)
	var requests atomic.Int32
	first, rest := make(chan struct{}), make(chan struct{})
	f := fetchFrom(t, sum, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(first)
		}
		<-rest
		serve(jar)(w, r)
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := f.run(context.Background()); err != nil {
				t.Error(err)
			}
			if err := f.to.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	<-first
	time.Sleep(50 * time.Millisecond) // for the others to come to the lock
	close(rest)
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

func TestInterrupted(t *testing.T) {
	jar, sum := pack(t, append([]entry{{name: "big", text: strings.Repeat("x", 1<<20)}}, programs...)...)
	t.Run("while it downloads", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		f := fetchFrom(t, sum, func(w http.ResponseWriter, r *http.Request) {
			w.Write(jar[:100])
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
		})
		if err := f.run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.leavesNothing(t)
	})
	t.Run("while it unpacks", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "jar"), jar, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := unpack(ctx, filepath.Join(dir, "jar"), filepath.Join(dir, "programs")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("while another one is at work", func(t *testing.T) {
		f := fetchFrom(t, sum, serve(jar))
		if err := f.makeParent(); err != nil {
			t.Fatal(err)
		}
		unlock, err := lock(context.Background(), string(f.to)+".lock")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if err := f.run(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process") {
			t.Error(err)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		f.succeeds(t)
	})
}
