package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/ulikunitz/xz"
)

// An entry is a file of an archive, unless kind says otherwise.
type entry struct {
	name string
	kind byte   // of package tar
	to   string // of a link
	text string
}

// programs are the entries of an archive that is complete.
var programs = []entry{
	{name: "bin/initdb", text: "#!/bin/sh"},
	{name: "bin/postgres", text: "#!/bin/sh\necho postgres"},
	{name: "share/postgresql/", kind: tar.TypeDir},
	{name: "lib/libpq.so.5.17", text: "a library"},
	{name: "lib/libpq.so", kind: tar.TypeSymlink, to: "libpq.so.5.17"},
	{name: "opt/local/lib/libpq.so", kind: tar.TypeSymlink, to: "../../../lib/libpq.so.5.17"},
	{name: "lib/libpq.so.5", kind: tar.TypeLink, to: "lib/libpq.so.5.17"},
}

// pack returns an archive, as the repository has them, and its checksum.
func pack(t *testing.T, entries ...entry) (jar []byte, sum string) {
	t.Helper()
	var txz bytes.Buffer
	compressed, err := xz.NewWriter(&txz)
	if err != nil {
		t.Fatal(err)
	}
	all := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.to, Size: int64(len(e.text)), Mode: 0o700}
		if e.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := all.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := all.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return zipped(t, "postgres-linux-x86_64.txz", txz.Bytes())
}

// zipped returns a jar with a manifest and one more file.
func zipped(t *testing.T, name string, content []byte) (jar []byte, sum string) {
	t.Helper()
	var out bytes.Buffer
	files := zip.NewWriter(&out)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"META-INF/MANIFEST.MF", []byte("Manifest-Version: 1.0\n")}, {name, content}} {
		w, err := files.Create(f.name)
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), checksum(out.Bytes())
}

func checksum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
