package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/inspect"
)

// attemptTime is how long a Locker waits for a new connection.
const attemptTime = 10 * time.Second

// silentHost returns the finding of how long a host that went silent is in the way of the next. ok
// is false if there is only one host. It is about the programs that use these settings: pgadvisory
// itself has a default.
func (s settings) silentHost() (f inspect.Finding, ok bool, err error) {
	c, err := s.parse()
	if err != nil {
		return f, false, err
	}
	n := max(hostsOf(c), len(s.hosts()))
	if n < 2 {
		return f, false, nil
	}
	f = inspect.Finding{Subject: "connect_timeout", Value: fmt.Sprintf("%v for each of %d hosts", c.ConnectTimeout, n)}
	most := (attemptTime - 1) / time.Duration(n-1) / time.Second // in seconds: all but one may be silent
	advice := fmt.Sprintf("set connect_timeout=%d", min(most, 2))
	switch {
	case c.ConnectTimeout == 0:
		f.Verdict, f.Value = inspect.Warning, fmt.Sprintf("not set, for %d hosts", n)
		f.Advice = "A driver waits for a host that went silent as long as the kernel does, and never tries the next one: "
	case time.Duration(n-1)*c.ConnectTimeout >= attemptTime:
		f.Verdict = inspect.Warning
		f.Advice = fmt.Sprintf("A Locker waits %v for a new connection, which is over before the last host is tried: ", attemptTime)
		advice = fmt.Sprintf("set connect_timeout=%d or less", most)
	default:
		return f, true, nil
	}
	if most == 0 {
		advice = "name fewer hosts"
	}
	f.Advice += advice
	return f, true, nil
}

// hostsOf returns how many servers the settings name, a service's included.
func hostsOf(c *pgx.ConnConfig) int {
	address := func(host string, port uint16) string { return fmt.Sprintf("%s:%d", cmp.Or(host, "localhost"), port) }
	hosts := map[string]bool{address(c.Host, c.Port): true}
	for _, f := range c.Fallbacks { // each host may be there twice, with TLS and without
		hosts[address(f.Host, f.Port)] = true
	}
	return len(hosts)
}
