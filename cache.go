package coopsqlite

// stmtCache keeps a connection's statements by their text, the least recently
// used going first.
type stmtCache struct {
	capacity    int
	byText      map[string]*statement
	first, last *statement // most recent first
}

func newStmtCache(capacity int) *stmtCache {
	return &stmtCache{capacity: capacity, byText: make(map[string]*statement)}
}

// get finds a statement and makes it the most recent.
func (c *stmtCache) get(text string) *statement {
	s := c.byText[text]
	if s != nil && c.first != s {
		c.unlink(s)
		c.link(s)
	}
	return s
}

func (c *stmtCache) put(s *statement) {
	if c.capacity == 0 {
		return
	}
	if len(c.byText) >= c.capacity {
		c.remove(c.last)
	}
	c.byText[s.text] = s
	s.cached = true
	c.link(s)
}

// remove drops the statement from the cache and finalizes the statement, at once or when its user is done.
func (c *stmtCache) remove(s *statement) {
	c.unlink(s)
	delete(c.byText, s.text)
	s.cached = false
	s.discard()
}

func (c *stmtCache) clear() {
	for c.first != nil {
		c.remove(c.first)
	}
}

func (c *stmtCache) link(s *statement) {
	s.prev, s.next = nil, c.first
	if c.first != nil {
		c.first.prev = s
	} else {
		c.last = s
	}
	c.first = s
}

func (c *stmtCache) unlink(s *statement) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		c.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		c.last = s.prev
	}
}
