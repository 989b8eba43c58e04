package outbox

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// An Event is what a transaction wants the world to know once it is committed.
// The fields, and the columns behind them, are those of the usual outbox
// convention.
type Event struct {
	// AggregateType and AggregateID name what the event is about, such as
	// "order" and "4711". Events of one aggregate are delivered one after the
	// other, in the order in which they were appended. An empty AggregateID
	// means that the event has no place in any order. At most 255 bytes each.
	AggregateType string
	AggregateID   string
	// Type says what happened, such as "order.paid": 1 to 255 bytes.
	Type string
	// Payload is handed to the consumer as it is.
	Payload []byte
}

// ordered reports whether the event has a place in the order of an aggregate.
func (e Event) ordered() bool { return e.AggregateID != "" }

func (e Event) check() error {
	if e.Type == "" {
		return fmt.Errorf("%w: Type is empty", ErrInvalidEvent)
	}
	for _, f := range []struct{ name, value string }{
		{"AggregateType", e.AggregateType}, {"AggregateID", e.AggregateID}, {"Type", e.Type},
	} {
		switch {
		case len(f.value) > maxName:
			return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalidEvent, f.name, maxName)
		case !utf8.ValidString(f.value):
			return fmt.Errorf("%w: %s is not UTF-8", ErrInvalidEvent, f.name)
		case strings.ContainsRune(f.value, 0):
			return fmt.Errorf("%w: %s contains NUL", ErrInvalidEvent, f.name)
		}
	}
	return nil
}

// maxName bounds, in bytes, each text of an event: all three are in indexes,
// and PostgreSQL refuses index rows above a third of a page.
const maxName = 255

// A Delivery is an event in the hands of a relay: claimed, not yet answered.
type Delivery struct {
	Event
	// ID is the event's number: unique within the table, never reused, and
	// rising within an aggregate. A consumer that remembers the IDs it has seen
	// can ignore duplicates.
	ID int64
	// Attempt counts the deliveries of this event, this one included: 1 at first.
	Attempt int
	// Created is when the event was appended, by the store's clock.
	Created time.Time
	// Expires is when the claim ends unless it is extended, by the store's clock.
	Expires time.Time

	claim string
}

// A DeadEvent is an event that is not delivered any more. Unless relays run
// with SkipDead, it holds back the later events of its aggregate until
// [Outbox.Requeue] or [Outbox.Discard].
type DeadEvent struct {
	Event
	ID       int64
	Created  time.Time
	Attempts int    // deliveries tried
	Error    string // what the last of them ended with
}
