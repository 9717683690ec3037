package pgtest

import "sync"

// open holds the servers that are not closed yet.
var open registry

type registry struct {
	mu      sync.Mutex
	servers map[*Server]struct{}
}

func (r *registry) add(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == nil {
		r.servers = make(map[*Server]struct{})
	}
	r.servers[s] = struct{}{}
}

func (r *registry) remove(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.servers, s)
}

func (r *registry) all() []*Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Server, 0, len(r.servers))
	for s := range r.servers {
		all = append(all, s)
	}
	return all
}
