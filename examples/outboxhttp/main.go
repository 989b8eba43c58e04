// Command outboxhttp delivers the events of an outbox to an HTTP endpoint, or to
// a log.
//
//	outboxhttp append PATH KIND ID TYPE PAYLOAD   write an event
//	outboxhttp relay PATH URL                     deliver until interrupted
//	outboxhttp relay PATH log                     the same, to standard output
//
// Any number of them may run at once: they share the store. Several relays
// share the work, and one that is killed is replaced by the others as soon as
// its claims have ended.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	_ "github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

var errUsage = errors.New("usage: outboxhttp append PATH KIND ID TYPE PAYLOAD | relay PATH URL|log")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "outboxhttp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	appends := len(args) == 6 && args[0] == "append"
	relays := len(args) == 3 && args[0] == "relay"
	if !appends && !relays {
		return errUsage
	}
	db, err := sql.Open("coopsqlite", "file:"+url.PathEscape(args[1])+"?_journal_mode=WAL&_coop_owner=shared&_coop_app=outboxhttp")
	if err != nil {
		return err
	}
	defer db.Close()
	box, err := outbox.New(db, nil)
	if err != nil {
		return err
	}
	if relays {
		return relay(ctx, box, args[2])
	}
	return appendEvent(ctx, db, box, outbox.Event{AggregateType: args[2], AggregateID: args[3], Type: args[4], Payload: []byte(args[5])})
}

// appendEvent writes the event in a transaction. In a service that transaction
// is the one that does what the event tells of.
func appendEvent(ctx context.Context, db *sql.DB, box *outbox.Outbox, event outbox.Event) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := box.Append(ctx, tx, event); err != nil {
		return err
	}
	return tx.Commit()
}

func relay(ctx context.Context, box *outbox.Outbox, target string) error {
	deliver := poster(target)
	if target == "log" {
		deliver = logger(os.Stdout)
	}
	r, err := box.Relay(&outbox.RelayOptions{
		Workers: 4,
		Lease:   5 * time.Second,
		Timeout: 10 * time.Second,
		Poll:    100 * time.Millisecond,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := r.Run(ctx, deliver); ctx.Err() == nil {
		return err
	}
	return nil // interrupted: what was under way is finished and written down
}

// poster delivers by POST. The event's number goes along as an idempotency key,
// for an event may come twice.
func poster(url string) func(context.Context, outbox.Delivery) error {
	return func(ctx context.Context, d outbox.Delivery) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Payload))
		if err != nil {
			return outbox.Permanent(err)
		}
		request.Header.Set("Idempotency-Key", strconv.FormatInt(d.ID, 10))
		request.Header.Set("Event-Type", d.Type)
		request.Header.Set("Event-Subject", d.AggregateType+"/"+d.AggregateID)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection is used again
		return judge(response)
	}
}

// judge tells what may go away by itself from what will not: a message that is
// refused today is refused tomorrow.
func judge(response *http.Response) error {
	err := fmt.Errorf("endpoint answered %s", response.Status)
	switch code := response.StatusCode; {
	case code/100 == 2:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code/100 != 4:
		return err
	}
	return outbox.Permanent(err)
}

// logger delivers to a log, a line of JSON for each event.
func logger(out io.Writer) func(context.Context, outbox.Delivery) error {
	return func(_ context.Context, d outbox.Delivery) error {
		line, err := json.Marshal(map[string]any{
			"id": d.ID, "type": d.Type, "subject": d.AggregateType + "/" + d.AggregateID, "payload": string(d.Payload), "attempt": d.Attempt,
		})
		if err != nil {
			return outbox.Permanent(err)
		}
		_, err = out.Write(append(line, '\n'))
		return err
	}
}
