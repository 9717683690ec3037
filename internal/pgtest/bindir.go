package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// usualFolders are the folders where packages install PostgreSQL's programs, often outside of PATH.
// The star is the major version.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // PostgreSQL's own packages for Red Hat
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/usr/local/pgsql*/bin", // built from source
}

// bindir returns the folder with initdb and postgres: wanted if it is given, otherwise the folder
// that PATH or pg_config leads to, otherwise the newest of the usual folders.
func (m machine) bindir(wanted string) (string, error) {
	if wanted != "" {
		if !hasPrograms(wanted) {
			return "", fmt.Errorf("%s does not hold initdb and postgres", wanted)
		}
		return wanted, nil
	}

	path := filepath.SplitList(m.getenv("PATH"))
	for _, dir := range path {
		if hasPrograms(dir) {
			return dir, nil
		}
	}
	for _, dir := range path {
		if dir := bindirOf(filepath.Join(dir, "pg_config")); hasPrograms(dir) {
			return dir, nil
		}
	}
	var usual []string
	for _, pattern := range m.folders {
		dirs, _ := filepath.Glob(pattern)
		usual = append(usual, slices.DeleteFunc(dirs, func(dir string) bool { return !hasPrograms(dir) })...)
	}
	if len(usual) == 0 {
		return "", fmt.Errorf("initdb and postgres are neither in PATH nor in %s", strings.Join(m.folders, ", "))
	}
	return slices.MaxFunc(usual, func(a, b string) int { return versionIn(a) - versionIn(b) }), nil
}

func hasPrograms(dir string) bool {
	return dir != "" && executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres"))
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func bindirOf(pgConfig string) string {
	if !executable(pgConfig) {
		return ""
	}
	out, err := exec.Command(pgConfig, "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// versionIn returns the major version in a folder's name: 15 for /usr/lib/postgresql/15/bin. It
// returns 0 for a name without a version, such as /usr/local/pgsql.
func versionIn(dir string) int {
	name := strings.TrimLeftFunc(filepath.Base(filepath.Dir(dir)), func(r rune) bool { return r < '0' || r > '9' })
	major, _, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(major)
	return n
}
