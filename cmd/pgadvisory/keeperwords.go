package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// "run" consists of two processes. The one that the user started runs the command; it may be stopped
// by Ctrl-Z, or killed. The keeper holds the lock, and ends the command if the first process is gone.
// They exchange lines of JSON over two pipes, so each detects the end of the other. The pipe also
// keeps the password out of the arguments of a process.

// An order is the lock that the keeper must hold, with its options.
type order struct {
	Settings    settings
	Application string
	Key         advisory.Key
	Shared      bool
	Transaction bool
	Once        bool
	MaxWait     *time.Duration
	Failover    time.Duration // 0: the default of the library
	TokenEpoch  int
	HoldAtLeast time.Duration
	Grace       time.Duration
}

// A request is a message to the keeper.
type request struct {
	Child int  `json:",omitempty"` // the process group of the command, which has started
	Ended bool `json:",omitempty"` // the command has ended
	Now   bool `json:",omitempty"` // release at once
}

// An answer is a message of the keeper.
type answer struct {
	Held     *held    `json:",omitempty"`
	Refused  *refusal `json:",omitempty"` // the keeper does not hold the lock, and ends
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

// listen sends the messages of r to a channel, and closes it at the end of r.
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
