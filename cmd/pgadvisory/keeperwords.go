package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// "run" is two processes. The one that was started runs the command; it may be stopped by
// Ctrl-Z, or killed. The keeper holds the lock, and ends the command if the first process
// is gone. They talk in lines of JSON over two pipes, so that each learns of the end of the
// other. The pipe also keeps the password out of the arguments of a process.

// An order says what the keeper is to hold, and how.
type order struct {
	Settings    settings
	Application string
	Key         advisory.Key
	Shared      bool
	Transaction bool
	Once        bool
	MaxWait     *time.Duration
	Failover    time.Duration // 0: as the library has it
	HoldAtLeast time.Duration
	Grace       time.Duration
}

// A request is what the keeper is told.
type request struct {
	Child int  `json:",omitempty"` // the process group of the command, which runs
	Ended bool `json:",omitempty"` // it runs no more
	Now   bool `json:",omitempty"` // release at once
}

// An answer is what the keeper says.
type answer struct {
	Held     *held    `json:",omitempty"`
	Refused  *refusal `json:",omitempty"` // it does not hold the lock, and ends
	Lost     string   `json:",omitempty"`
	Released bool     `json:",omitempty"`
}

type held struct {
	Token  uint64
	Waited time.Duration
}

type refusal struct {
	Code int
	Text string
	Busy bool // the lock was not free
}

// listen sends what comes in to a channel, which it closes at the end.
func listen[T any](r io.Reader) <-chan T {
	c := make(chan T, 1)
	go func() {
		defer close(c)
		for lines := json.NewDecoder(r); ; {
			var v T
			if lines.Decode(&v) != nil {
				return
			}
			c <- v
		}
	}()
	return c
}
