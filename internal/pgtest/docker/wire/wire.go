// Package wire defines the messages between package pgtest and its command docker.
package wire

// The requests. Create comes first, and only once.
const (
	Create = "create"
	Start  = "start" // creates the container, or starts it again
	Stop   = "stop"
	Crash  = "crash"
	Pause  = "pause"
	Resume = "resume"
	Log    = "log"
	State  = "state" // the answer is Running or nothing
)

// Running is the answer to State if the container runs.
const Running = "running"

// A Request is a line to the command.
type Request struct {
	Do   string
	Mode string `json:",omitempty"` // of Stop: fast or immediate

	// Of Create:
	Endpoint string   `json:",omitempty"` // of the engine
	Name     string   `json:",omitempty"` // of the container
	Image    string   `json:",omitempty"`
	Port     string   `json:",omitempty"` // on 127.0.0.1
	Env      []string `json:",omitempty"`
	Cmd      []string `json:",omitempty"`
}

// An Answer is a line from the command.
type Answer struct {
	Text  string `json:",omitempty"`
	Error string `json:",omitempty"`
}
