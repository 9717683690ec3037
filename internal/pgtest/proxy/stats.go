package proxy

import "slices"

// Stats counts what was forwarded, on all connections together. A message is
// counted before its receiver can see it, so a client that has its answer finds
// it counted; one that is held back by Freeze is not.
type Stats struct {
	// RoundTrips is the number of times that clients had to wait for the server.
	// One begins with the first message of a client that has been answered
	// completely, and counts when the server begins to answer. It ends when the
	// server has no more to say without being asked: with the ReadyForQuery for
	// the last Query or Sync sent so far, with a request for a password or for
	// COPY data, and after a Flush as soon as the client goes on. So what a client
	// pipelines is one round trip. Those of a new connection count too.
	RoundTrips int

	Queries  []string // the texts of simple queries, in order
	Parses   int
	Binds    int
	Executes int
	Prepared int // Parses of a named statement: what is left in a session, and on the server

	Connections    int // sessions begun
	CancelRequests int // each on a connection of its own, which Connections leaves out

	BytesUp, BytesDown int64
}

// Stats returns the counts since New or Reset.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Queries = slices.Clone(s.Queries)
	return s
}

// Reset sets all counts to zero. A round trip in progress is not counted again.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats = Stats{}
}

func (s *Stats) add(m Message) {
	if m.Direction == Down {
		s.BytesDown += int64(len(m.raw))
		return
	}
	s.BytesUp += int64(len(m.raw))
	switch m.Type {
	case Startup:
		s.Connections++
	case Cancel:
		s.CancelRequests++
	case 'Q':
		s.Queries = append(s.Queries, m.Text)
	case 'P':
		s.Parses++
		if m.Name != "" {
			s.Prepared++
		}
	case 'B':
		s.Binds++
	case 'E':
		s.Executes++
	}
}
