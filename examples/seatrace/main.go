// Command seatrace lets processes race for seats: each run is a process of its
// own that wants some of the seats in a store, and any number may run at once.
//
//	seatrace init PATH [SEATS]              create the store, with 3 seats
//	seatrace reserve PATH KEY QUANTITY      reserve, once for each KEY
//	seatrace restock PATH QUANTITY          add seats
//
// Each prints one line of JSON with a status; for reserve that is accepted,
// replayed, insufficient, or conflict if the KEY belongs to another quantity.
// With --crash-before-commit or --crash-after-commit, reserve ends with exit
// code 23 just there, without cleaning up.
//
// All that run at the same time share the store (_coop_owner=shared); programs
// that do not use this driver can read it and cannot write it.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
	"github.com/coopsqlite/coopsqlite/leases/reservations"
)

const (
	beforeCommit = "--crash-before-commit"
	afterCommit  = "--crash-after-commit"
	crashCode    = 23

	usage = "usage: seatrace init PATH [SEATS] | reserve PATH KEY QUANTITY [" + afterCommit + "|" + beforeCommit + "] | restock PATH QUANTITY"
)

var errUsage = errors.New(usage)

func main() {
	status, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "seatrace:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(status)
}

type status struct {
	Status  string  `json:"status"`
	Seconds float64 `json:"seconds"` // what it took, waiting for others included
}

func run(ctx context.Context, args []string) (status, error) {
	args, crash := crashPoint(args)
	if len(args) < 2 {
		return status{}, errUsage
	}
	mode := "rw" // a path mistyped is no new store
	if args[0] == "init" {
		mode = "rwc"
	}
	s, err := open(args[1], mode)
	if err != nil {
		return status{}, err
	}
	defer s.db.Close()
	began := time.Now()
	text, err := s.do(ctx, args[0], args[2:], crash)
	return status{text, time.Since(began).Seconds()}, err
}

func (s *store) do(ctx context.Context, command string, args []string, crash string) (string, error) {
	switch {
	case command == "init" && len(args) <= 1:
		seats, err := number(args, 3)
		if err != nil {
			return "", err
		}
		return "ready", s.repo.SetStock(ctx, "seat", seats)
	case command == "restock" && len(args) == 1:
		seats, err := number(args, 0)
		if err != nil {
			return "", err
		}
		return "restocked", s.repo.Restock(ctx, "seat", seats)
	case command == "reserve" && len(args) == 2:
		seats, err := number(args[1:], 0)
		if err != nil {
			return "", err
		}
		s.crashing.Store(crash == beforeCommit)
		text, err := s.reserve(ctx, args[0], seats)
		if crash == afterCommit && err == nil {
			os.Exit(crashCode)
		}
		return text, err
	}
	return "", errUsage
}

// reserve wants seats under a key, and leaves an event for whoever sends the
// tickets.
func (s *store) reserve(ctx context.Context, key string, seats int64) (string, error) {
	receipt, err := s.repo.Reserve(ctx, reservations.Request{
		Key:   key,
		Lines: []reservations.Line{{SKU: "seat", Quantity: seats}},
		Event: &outbox.Event{AggregateType: "reservation", AggregateID: key, Type: "seats.reserved", Payload: fmt.Append(nil, seats)},
	})
	if errors.Is(err, reservations.ErrKeyReused) {
		return "conflict", nil
	}
	return string(receipt.Status), err
}

type store struct {
	db       *sql.DB
	repo     *reservations.Repository
	crashing atomic.Bool // at the next commit
}

func open(path, mode string) (*store, error) {
	s := &store{}
	dsn := "file:" + url.PathEscape(path) + "?_coop_owner=shared&_coop_app=seatrace&_journal_mode=WAL&mode=" + mode
	connector, err := coopsqlite.NewConnector(dsn,
		&coopsqlite.Options{ConnectHook: func(c *sqlite3.SQLiteConn) error {
			// SQLite calls this when everything is written but the commit.
			c.RegisterCommitHook(func() int {
				if s.crashing.Load() {
					os.Exit(crashCode)
				}
				return 0
			})
			return nil
		}})
	if err != nil {
		return nil, err
	}
	s.db = sql.OpenDB(connector)
	s.repo, err = reservations.New(s.db, &reservations.Options{
		Tables: reservations.Tables{Stock: "stock", Reservations: "reservations", Outbox: "outbox"},
	})
	if err != nil {
		s.db.Close()
		return nil, err
	}
	return s, nil
}

// crashPoint takes the flag out of the arguments.
func crashPoint(args []string) (rest []string, crash string) {
	rest = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		is := arg == beforeCommit || arg == afterCommit
		if is {
			crash = arg
		}
		return is
	})
	return rest, crash
}

func number(args []string, usual int64) (int64, error) {
	if len(args) == 0 {
		return usual, nil
	}
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number", errUsage, args[0])
	}
	return n, nil
}
