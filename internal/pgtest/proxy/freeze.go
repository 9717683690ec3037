package proxy

// A trap is an armed FreezeOn or FreezeAfter.
type trap struct {
	match func(Message) bool
	after bool
	dir   Direction
	hit   chan struct{}
}

// Freeze stops forwarding in dir, on all connections and on new ones, without closing any. All that
// a peer sends from now on, including the end of its connection, waits for Thaw. Peers still
// connect, and their kernels still get acknowledgements, but no byte of the protocol.
func (p *Proxy) Freeze(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeze(dir)
}

// FreezeOn freezes dir (Both if not given) at the first message for which match is true. It
// forwards earlier messages of the connection, but holds this one. Then it closes the channel.
//
// match gets every message of every connection, one at a time, and must not call the proxy. A later
// FreezeOn or FreezeAfter replaces an earlier one.
func (p *Proxy) FreezeOn(match func(msg Message) bool, dir ...Direction) <-chan struct{} {
	return p.arm(match, false, dir)
}

// FreezeAfter is FreezeOn, but the message itself is forwarded. No answer to it is. The channel is
// closed when the message has been forwarded.
func (p *Proxy) FreezeAfter(match func(msg Message) bool, dir ...Direction) <-chan struct{} {
	return p.arm(match, true, dir)
}

// Thaw forwards what was held, and everything from now on. It cancels a FreezeOn or FreezeAfter
// that has not frozen yet.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = nil
	for _, thawed := range p.frozen {
		close(thawed)
	}
	clear(p.frozen)
}

func (p *Proxy) arm(match func(Message) bool, after bool, dirs []Direction) <-chan struct{} {
	t := &trap{match: match, after: after, hit: make(chan struct{})}
	for _, d := range dirs {
		t.dir |= d
	}
	if len(dirs) == 0 {
		t.dir = Both
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = t
	return t.hit
}

func (p *Proxy) freeze(dir Direction) {
	for _, d := range []Direction{Up, Down} {
		if dir&d != 0 && p.frozen[d] == nil {
			p.frozen[d] = make(chan struct{})
		}
	}
}

// thawed returns a channel to wait for before forwarding in dir, or nil if dir is not frozen.
func (p *Proxy) thawed(dir Direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen[dir]
}
