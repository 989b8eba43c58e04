package main

import (
	"context"
	"strconv"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// backlogJSON is what outbox --json prints.
type backlogJSON struct {
	Pending int64   `json:"pending"`
	Dead    int64   `json:"dead"`
	Oldest  float64 `json:"oldest_seconds"`
}

// deadJSON is one event of outbox dead --json.
type deadJSON struct {
	ID            int64     `json:"id"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Type          string    `json:"type"`
	Payload       []byte    `json:"payload"`
	Created       time.Time `json:"created"`
	Attempts      int       `json:"attempts"`
	Error         string    `json:"error"`
}

func runOutbox(ctx context.Context, s *session) error {
	flags := s.ownerFlags()
	table := flags.String("table", "coop_outbox", "`name` of the events' table")
	args, err := s.parse(flags, 1, -1)
	if err != nil {
		return err
	}
	path, action := args[0], "backlog"
	if len(args) > 1 {
		action = args[1]
		args = args[2:]
	} else {
		args = nil
	}
	switch {
	case action == "backlog" && len(args) == 0:
		return s.readOutbox(path, *table, func(o *outbox.Outbox) error { return s.printBacklog(ctx, o) })
	case action == "dead" && len(args) == 0:
		return s.readOutbox(path, *table, func(o *outbox.Outbox) error { return s.listDead(ctx, o) })
	case action == "requeue" && len(args) > 0:
		return s.decide(path, *table, args, "requeued", func(o *outbox.Outbox, id int64) error { return o.Requeue(ctx, id) })
	case action == "discard" && len(args) > 0:
		return s.decide(path, *table, args, "discarded", func(o *outbox.Outbox, id int64) error { return o.Discard(ctx, id) })
	}
	return s.wrongUse()
}

func (s *session) readOutbox(path, table string, fn func(*outbox.Outbox) error) error {
	reader, err := s.openReader(path)
	if err != nil {
		return err
	}
	defer reader.close()
	o, err := openOutbox(reader, table)
	if err != nil {
		return err
	}
	return fn(o)
}

func openOutbox(st *store, table string) (*outbox.Outbox, error) {
	if there, err := st.hasTable(table); err != nil {
		return nil, err
	} else if !there {
		return nil, usagef("%s has no table %s", st.Path(), table)
	}
	return outbox.New(st.db, &outbox.Options{Table: table})
}

func (s *session) printBacklog(ctx context.Context, o *outbox.Outbox) error {
	b, err := o.Backlog(ctx)
	if err != nil {
		return err
	}
	s.printf("%d events pending, the oldest for %s; %d dead\n", b.Pending, b.Oldest.Round(time.Millisecond), b.Dead)
	if err := s.printJSON(backlogJSON{b.Pending, b.Dead, b.Oldest.Seconds()}); err != nil {
		return err
	}
	if b.Dead > 0 {
		return errFinding
	}
	return nil
}

func (s *session) listDead(ctx context.Context, o *outbox.Outbox) error {
	found := false
	for e, err := range o.Dead(ctx) {
		if err != nil {
			return err
		}
		found = true
		s.printf("%d\t%s\t%s %s\tafter %d attempts: %s\n", e.ID, e.Type, e.AggregateType, e.AggregateID, e.Attempts, e.Error)
		err := s.printJSON(deadJSON{e.ID, e.AggregateType, e.AggregateID, e.Type, e.Payload, e.Created, e.Attempts, e.Error})
		if err != nil {
			return err
		}
	}
	if found {
		return errFinding
	}
	s.printf("No event is dead.\n")
	return nil
}

// decide does the same to each of some dead events, as the store's owner.
func (s *session) decide(path, table string, ids []string, done string, fn func(*outbox.Outbox, int64) error) error {
	numbers := make([]int64, len(ids))
	for i, text := range ids {
		var err error
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return usagef("the id %q is not a number", text)
		}
	}
	owner, err := s.openOwner(path, nil)
	if err != nil {
		return err
	}
	defer owner.close()
	o, err := openOutbox(owner, table)
	if err != nil {
		return err
	}
	for i, id := range numbers {
		s.progress("%d of %d", i, len(numbers))
		err := fn(o, id)
		s.progress("")
		if err != nil {
			return err
		}
		s.printf("%d %s\n", id, done)
		if err := s.printJSON(map[string]any{"id": id, done: true}); err != nil {
			return err
		}
	}
	return nil
}
