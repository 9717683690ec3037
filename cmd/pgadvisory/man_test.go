package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// manFile is the manual page that packages install.
const manFile = "../../docs/pgadvisory.1"

// TestManPage shows that the manual page has the text of the help. PGADVISORY_UPDATE_MAN=1 rewrites
// the page.
func TestManPage(t *testing.T) {
	want := manPage()
	if os.Getenv("PGADVISORY_UPDATE_MAN") != "" {
		if err := os.WriteFile(manFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(want, "\n")
		for i, line := range wantLines {
			if i >= len(gotLines) || gotLines[i] != line {
				t.Fatalf("%s differs from the help in line %d; PGADVISORY_UPDATE_MAN=1 rewrites it. The help has:\n%s", manFile, i+1, line)
			}
		}
		t.Fatalf("%s has %d lines, the help has %d", manFile, len(gotLines), len(wantLines))
	}
}

// Every word of the help is on the page as groff formats it, so no line is taken for a request, and
// no character is lost in an escape.
func TestManPageHasEveryWordOfTheHelp(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("needs groff: on Debian, apt-get install groff-base")
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-o", "-P-u", "-rLL=200n", manFile)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("%v: %v\n%s", cmd, err, &warnings)
	}
	page := words(string(out))
	on := make(map[string]int)
	for _, word := range page {
		on[word]++
	}
	var help strings.Builder
	for _, c := range commands() {
		c.printHelp(&help)
	}
	for _, text := range topics {
		help.WriteString(text)
	}
	for _, word := range words(strings.ReplaceAll(help.String(), "\nusage: ", "\n")) {
		if on[word] == 0 {
			t.Errorf("%q is not on the page", word)
		}
	}
}

// words returns the words of a text, without the marks of sentences and lists.
func words(text string) (list []string) {
	for _, word := range strings.Fields(text) {
		if word = strings.ToLower(strings.TrimRight(word, ".:;,")); len(word) > 1 {
			list = append(list, word)
		}
	}
	return list
}

// manPage returns the manual page in the macros of man(7).
func manPage() string {
	var p manWriter
	p.line(`.\" From the help: PGADVISORY_UPDATE_MAN=1 go test -run TestManPage ./cmd/pgadvisory`)
	p.line(`.TH PGADVISORY 1 "" "pgadvisory" "User Commands"`)
	p.line(".nh\n.ad l")
	p.line(".SH NAME")
	p.line(`pgadvisory \- PostgreSQL advisory locks from the command line`)
	p.line(".SH SYNOPSIS")
	p.line(".B pgadvisory\n.I SUBCOMMAND\n[flags] [arguments]")
	p.line(".SH DESCRIPTION")
	for _, c := range commands() {
		p.entry(c.name, c.summary)
	}
	p.line(".SH SUBCOMMANDS")
	for _, c := range commands() {
		p.line(".SS " + c.name)
		p.line(`\fBpgadvisory ` + roff(c.name) + `\fR ` + roff(c.args))
		p.line(".PP")
		p.line(roff(strings.ToUpper(c.summary[:1]) + c.summary[1:] + "."))
		p.text(c.help)
		for _, f := range c.flagList() {
			p.entry(flagHelp(f))
		}
	}
	for _, topic := range []struct{ title, name string }{{"CONNECTION", "connection"}, {"KEYS", "keys"}, {"EXIT STATUS", "exit-codes"}} {
		p.line(".SH " + topic.title)
		p.text(topics[topic.name])
	}
	p.line(".SH SEE ALSO")
	p.line(".BR flock (1),\n.BR psql (1)")
	return p.String()
}

type manWriter struct{ strings.Builder }

func (p *manWriter) line(s string) { fmt.Fprintln(p, s) }

// entry is a term and what it means.
func (p *manWriter) entry(term, text string) {
	p.line(".TP\n\\fB" + roff(term) + "\\fR")
	p.line(roff(text))
}

var (
	item   = regexp.MustCompile(`^  - (.*)$`)
	column = regexp.MustCompile(`^  \S.*?( {2,})\S`)
)

// text writes a text of the help. Lines at the margin are prose. Indented lines are a list, or have
// two columns, or are to be typed.
func (p *manWriter) text(help string) {
	for _, block := range strings.Split(strings.Trim(help, "\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		for len(lines) > 0 && !strings.HasPrefix(lines[0], " ") {
			n := 1
			for n < len(lines) && !strings.HasPrefix(lines[n], " ") {
				n++
			}
			p.line(".PP\n" + roff(strings.Join(lines[:n], "\n")))
			lines = lines[n:]
		}
		var typed []string
		at := 0 // where the second column begins
		for i := 0; i < len(lines); i++ {
			first, rest := lines[i], ""
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ") {
				i++
				rest += "\n" + strings.TrimSpace(lines[i])
			}
			if gap := column.FindStringSubmatchIndex(first); gap != nil {
				at = gap[3]
			}
			switch {
			case item.MatchString(first):
				p.line(".IP \\(bu 2\n" + roff(item.FindStringSubmatch(first)[1]+rest))
			case at > 0 && at < len(first) && first[at-1] == ' ':
				p.entry(strings.TrimSpace(first[:at]), first[at:]+rest)
			default:
				typed = append(typed, first[2:]+rest)
			}
		}
		if len(typed) > 0 {
			p.line(".PP\n.RS\n.nf\n" + roff(strings.Join(typed, "\n")) + "\n.fi\n.RE")
		}
	}
}

// roff escapes what groff would take for a request, an escape or a typographic character.
func roff(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch start := i == 0 || s[i-1] == '\n'; {
		case start && r == '.':
			b.WriteString(`\&.`)
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
