//go:build unix

package pgtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// childrenOf returns the ids of the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		return pgrep(pid)
	}
	var children []int
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended since
		}
		// pid (name) state parent …, where the name may hold anything
		_, text, _ = bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(" "))
		fields := bytes.Fields(text)
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}

// pgrep is childrenOf for systems without /proc.
func pgrep(pid int) ([]int, error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	var none *exec.ExitError
	if err != nil && !(errors.As(err, &none) && none.ExitCode() == 1) {
		return nil, err
	}
	var children []int
	for _, field := range bytes.Fields(out) {
		child, err := strconv.Atoi(string(field))
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}
