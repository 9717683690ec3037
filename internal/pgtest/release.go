package pgtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/embedded/folder"
)

// embeddedVersion is the version of the embedded server's programs, as the repository has it:
// PostgreSQL 17.11.
const embeddedVersion = "17.11.0"

// mavenCentral is the repository with the archives of the embedded server's programs. Those of
// io.zonky.test.postgres have no more than initdb, pg_ctl, postgres and their libraries.
const mavenCentral = "https://repo1.maven.org/maven2"

// checksums are the SHA-256 of the archives of embeddedVersion.
var checksums = map[string]string{
	"darwin-amd64":         "d464ff178e9860ba204662ac23fa547504b7fd392392ff2fb92e3fd73b5bdb64",
	"darwin-arm64v8":       "a1c2786acb0c398f9b2d76806fc52f5dc8b222cbc8e9383a9b9702084daaf3a5",
	"linux-amd64":          "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
	"linux-amd64-alpine":   "ace9a6f95b1c98ce84c9841267cd04ebee5d7de5dc7b8fea148ead44f145afbd",
	"linux-arm64v8":        "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b",
	"linux-arm64v8-alpine": "4ab1a5ced1200b2740186d537fd79628bc1c83f07d2bab7b18b6103390d48c54",
}

// A release is an archive of the embedded server's programs.
type release struct {
	url    string
	sha256 string
	folder folder.Folder // to keep the programs in
}

// release returns the archive for this machine.
func (m machine) release() (release, error) {
	platform := platformOf(runtime.GOOS, runtime.GOARCH, musl())
	sum := cmp.Or(m.getenv("PGADVISORY_TEST_SHA256"), checksums[platform])
	if len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		if sum == "" {
			return release{}, fmt.Errorf("there is no archive for %s/%s", runtime.GOOS, runtime.GOARCH)
		}
		return release{}, fmt.Errorf("PGADVISORY_TEST_SHA256 is %q, not 64 hexadecimal digits", sum)
	}
	cache, err := m.cacheFolder()
	if err != nil {
		return release{}, err
	}
	artifact := "embedded-postgres-binaries-" + platform
	return release{
		url: strings.TrimRight(cmp.Or(m.getenv("PGADVISORY_TEST_MAVEN"), mavenCentral), "/") +
			"/io/zonky/test/postgres/" + artifact + "/" + embeddedVersion + "/" + artifact + "-" + embeddedVersion + ".jar",
		sha256: sum,
		folder: folder.Folder(filepath.Join(cache, "pgadvisory", "embedded", platform+"-"+sum[:12])),
	}, nil
}

// platformOf returns the repository's name of a platform.
func platformOf(goos, goarch string, musl bool) string {
	if goarch == "arm64" {
		goarch = "arm64v8"
	}
	platform := goos + "-" + goarch
	if musl {
		platform += "-alpine"
	}
	return platform
}

// musl reports whether the C library of this machine is musl, as on Alpine.
func musl() bool {
	its, _ := filepath.Glob("/lib/ld-musl-*")
	glibc, _ := filepath.Glob("/lib*/ld-linux*")
	return len(its) > 0 && len(glibc) == 0
}

// cacheFolder returns the cache folder of the user. Root's is one that the server can read, which
// runs as another user.
func (m machine) cacheFolder() (string, error) {
	if dir := m.getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache", nil
	}
	return os.UserCacheDir()
}
