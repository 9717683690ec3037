package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// A Book is the file in which a process writes down its holds. What it has written is there
// even if it is killed at once.
type Book struct {
	file *os.File
	last atomic.Int64
}

// An entry is a line of a Book.
type entry struct {
	N           int64  `json:"n,omitempty"` // of the hold
	Hold        *Hold  `json:"hold,omitempty"`
	Downgrading Time   `json:"downgrading,omitempty"`
	Alive       Time   `json:"alive,omitempty"`
	Told        Time   `json:"told,omitempty"`
	Wrong       string `json:"wrong,omitempty"`
}

// NewBook makes a Book in a new file.
func NewBook(path string) (*Book, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	return &Book{file: f}, err
}

func (b *Book) write(e entry) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = b.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // a history that is not whole says nothing
	}
}

// Got writes a hold down, which has just begun, and returns its number.
func (b *Book) Got(h Hold) int64 {
	n := b.last.Add(1)
	b.write(entry{N: n, Hold: &h})
	return n
}

// Downgrading writes down that Downgrade is about to be called.
func (b *Book) Downgrading(n int64) { b.write(entry{N: n, Downgrading: Now()}) }

// End writes down the end of a hold, before Unlock is called.
func (b *Book) End(n int64, alive, told Time) { b.write(entry{N: n, Alive: alive, Told: told}) }

// Wrong writes down what must not happen.
func (b *Book) Wrong(err error) { b.write(entry{Wrong: err.Error()}) }

// Read reads a Book.
func Read(path string) (holds []Hold, wrong []error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	at := map[int64]int{}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF { // also in the middle of a line: nothing that it tells has happened
			return holds, wrong, nil
		}
		var e entry
		if err == nil {
			err = json.Unmarshal(bytes.TrimSpace(line), &e)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if e.Wrong != "" {
			wrong = append(wrong, errors.New(e.Wrong))
		}
		if e.Hold != nil {
			at[e.N] = len(holds)
			holds = append(holds, *e.Hold)
		}
		if i, ok := at[e.N]; ok {
			h := &holds[i]
			h.Downgrading = max(h.Downgrading, e.Downgrading)
			h.Alive = max(h.Alive, e.Alive)
			h.Told = max(h.Told, e.Told)
		}
	}
}
