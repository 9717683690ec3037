package main

import (
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/inspect"
)

// With several hosts the connection string decides how long a silent one is in the way of the next.
func TestFindingAboutASilentHost(t *testing.T) {
	for _, v := range []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGCONNECT_TIMEOUT", "PGSSLMODE"} {
		t.Setenv(v, "")
	}
	const none = inspect.Verdict(99)
	for d, want := range map[string]struct {
		verdict inspect.Verdict
		words   string
	}{
		"host=db1":                                                     {none, ""},
		"host=db1 connect_timeout=0":                                   {none, ""},
		"host=db1,db2":                                                 {inspect.Warning, "not set, for 2 hosts"},
		"host=db1,db2 sslmode=disable":                                 {inspect.Warning, "not set, for 2 hosts"},
		"postgres://app@db1,db2,db3/app":                               {inspect.Warning, "not set, for 3 hosts"},
		"host=db1,db2 connect_timeout=0":                               {inspect.Warning, "not set, for 2 hosts"},
		"host=db,db hostaddr=10.0.0.1,10.0.0.2":                        {inspect.Warning, "not set, for 2 hosts"},
		"host=db1,db2 connect_timeout=2":                               {inspect.OK, "2s for each of 2 hosts"},
		"postgres://app@db1,db2/app?connect_timeout=9":                 {inspect.OK, "9s for each of 2 hosts"},
		"host=db1,db2 connect_timeout=10":                              {inspect.Warning, "10s for each of 2 hosts"},
		"host=db1,db2,db3 connect_timeout=4":                           {inspect.OK, "4s for each of 3 hosts"},
		"host=db1,db2,db3 connect_timeout=5":                           {inspect.Warning, "connect_timeout=4"},
		"host=a,b,c,d,e,f,g,h,i,j,k,l,m,n connect_timeout=1 port=5432": {inspect.Warning, "name fewer hosts"},
	} {
		s, err := parseSettings(d)
		if err != nil {
			t.Fatal(err)
		}
		f, ok, err := s.silentHost()
		switch {
		case err != nil:
			t.Errorf("%s: %v", d, err)
		case !ok && want.verdict != none || ok && f.Verdict != want.verdict:
			t.Errorf("%s: %v", d, f)
		case ok && (f.Subject != "connect_timeout" || !strings.Contains(f.String(), want.words) || (f.Advice != "") != (f.Verdict == inspect.Warning)):
			t.Errorf("%s: %v, want %q", d, f, want.words)
		}
	}
	t.Setenv("PGCONNECT_TIMEOUT", "3")
	s, err := parseSettings("host=db1,db2")
	if err != nil {
		t.Fatal(err)
	}
	if f, ok, err := s.silentHost(); err != nil || !ok || f.Verdict != inspect.OK {
		t.Errorf("PGCONNECT_TIMEOUT: %v, %v", f, err)
	}
}
