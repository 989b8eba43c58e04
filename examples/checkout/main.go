// Command checkout sells the last two seats of a show to three people, one of
// whom does not pay in time and one of whose card is refused at first.
//
// It shows a hold between "the seat is yours for now" and "it is paid", and an
// outbox whose events a relay hands to whoever needs to know; here, a log.
//
//	checkout PATH
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"time"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: checkout PATH")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], forPayment, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(1)
	}
}

// forPayment is how long a seat waits for its money. A real shop says 15
// minutes.
const forPayment = 300 * time.Millisecond

func run(ctx context.Context, path string, hold time.Duration, out io.Writer) error {
	db, err := sql.Open("coopsqlite", "file:"+url.PathEscape(path)+"?_journal_mode=WAL&_coop_app=checkout")
	if err != nil {
		return err
	}
	defer db.Close()
	repo, err := reservations.New(db, nil)
	if err != nil {
		return err
	}
	if err := repo.SetStock(ctx, "seat", 2); err != nil {
		return err
	}
	stop, err := logEvents(ctx, repo.Outbox(), out)
	if err != nil {
		return err
	}
	defer stop()

	shop := shop{repo, hold, out}
	// Ada pays at once, though her first card is refused.
	if err := shop.reserve(ctx, "ada"); err != nil {
		return err
	}
	if err := shop.pay(ctx, "ada", "refused card", "good card"); err != nil {
		return err
	}
	// Bob takes the other seat and goes for a walk. Cleo finds nothing.
	if err := shop.reserve(ctx, "bob"); err != nil {
		return err
	}
	if err := shop.reserve(ctx, "cleo"); err != nil {
		return err
	}
	// When Bob's time is over, the seat goes to whoever asks first.
	time.Sleep(hold)
	if err := shop.reserve(ctx, "cleo"); err != nil {
		return err
	}
	if err := shop.pay(ctx, "cleo", "good card"); err != nil {
		return err
	}
	if err := shop.pay(ctx, "bob", "good card"); err != nil {
		return err
	}
	return delivered(ctx, repo.Outbox())
}

type shop struct {
	repo *reservations.Repository
	hold time.Duration
	out  io.Writer
}

// reserve takes a seat for somebody. The key makes it safe to repeat, as after
// a time-out: the seat is taken once.
func (s shop) reserve(ctx context.Context, customer string) error {
	receipt, err := s.repo.Reserve(ctx, reservations.Request{
		Scope: "orders", Key: customer,
		Lines: []reservations.Line{{SKU: "seat", Quantity: 1}},
		Hold:  s.hold,
		Event: event(customer, "seat.held"),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s asks for a seat: %s\n", customer, receipt.Status)
	return nil
}

// pay tries one card after the other. The seat is confirmed only afterwards: if
// that fails, the money goes back.
func (s shop) pay(ctx context.Context, customer string, cards ...string) error {
	for _, card := range cards {
		if card != "good card" {
			fmt.Fprintf(s.out, "%s pays: %s\n", customer, card)
			continue
		}
		_, err := s.repo.Confirm(ctx, "orders", customer, *event(customer, "seat.sold"))
		if ended, ok := errors.AsType[*reservations.HoldEndedError](err); ok {
			fmt.Fprintf(s.out, "%s gets the money back: hold %s\n", customer, ended.State)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s has a seat\n", customer)
		return nil
	}
	_, err := s.repo.Cancel(ctx, "orders", customer, *event(customer, "seat.released"))
	return err
}

// event tells of a customer's seat. One customer's events are one aggregate:
// they arrive in order.
func event(customer, kind string) *outbox.Event {
	body, _ := json.Marshal(map[string]string{"customer": customer}) // strings always marshal
	return &outbox.Event{AggregateType: "order", AggregateID: customer, Type: kind, Payload: body}
}

// delivered waits until every event was delivered. A service need not: what is
// left is delivered when it runs again.
func delivered(ctx context.Context, box *outbox.Outbox) error {
	for ; ; time.Sleep(10 * time.Millisecond) {
		backlog, err := box.Backlog(ctx)
		if err != nil || backlog.Pending == 0 {
			return err
		}
	}
}

// logEvents delivers the events to a log, until stop is called.
func logEvents(ctx context.Context, box *outbox.Outbox, out io.Writer) (stop func(), err error) {
	relay, err := box.Relay(&outbox.RelayOptions{Logger: slog.Default()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = relay.Run(ctx, func(_ context.Context, d outbox.Delivery) error { // it ends with ctx, and only then
			_, err := fmt.Fprintf(out, "event %s %s\n", d.Type, d.Payload)
			return err
		})
	}()
	return func() { cancel(); <-done }, nil
}
