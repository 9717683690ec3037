package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

// Available returns an error that says what New is missing, or nil. It makes a pair once to find
// that. Before, it removes what killed runs have left.
var Available = sync.OnceValue(available)

func available() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("netns: network namespaces need Linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("netns: network namespaces need root")
	}
	for _, c := range []struct{ program, pkg string }{{"ip", "iproute2"}, {"iptables", "iptables"}} {
		if _, err := exec.LookPath(c.program); err != nil {
			return fmt.Errorf("netns: the program %s is missing; Debian's package %s has it", c.program, c.pkg)
		}
	}
	removeLeftovers()
	return try()
}

// try does once everything that a Pair can do: root in a container may have fewer privileges, and a
// kernel may lack a part.
func try() error {
	p, err := newPair(nil)
	if err != nil {
		return err
	}
	defer p.remove()
	if err := p.drop(Both); err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	if err := p.heal(); err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	return p.In(p.ClientNS, func() error { return nil })
}
