package main

import (
	"context"
	"strconv"
	"time"

	"github.com/coopsqlite/coopsqlite/leases"
)

// leaseJSON is one lease of leases --json.
type leaseJSON struct {
	Name     string    `json:"name"`
	Owner    string    `json:"owner"`
	Epoch    int64     `json:"epoch"`
	Acquired time.Time `json:"acquired"`
	Renewed  time.Time `json:"renewed"`
	Expires  time.Time `json:"expires"`
}

func runLeases(ctx context.Context, s *session) error {
	flags := s.ownerFlags()
	table := flags.String("table", "coop_leases", "`name` of the leases' table")
	prefix := flags.String("prefix", "", "list only names that begin with this `text`")
	args, err := s.parse(flags, 1, 4)
	if err != nil {
		return err
	}
	path, action := args[0], "list"
	if len(args) > 1 {
		action, args = args[1], args[2:]
	}
	switch {
	case action == "list" && len(args) <= 1:
		return s.listLeases(ctx, path, *table, *prefix)
	case action == "break" && len(args) == 2:
		epoch, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return usagef("the epoch %q is not a number", args[1])
		}
		return s.withLeases(path, *table, func(m *leases.Manager) error {
			if err := m.Break(ctx, args[0], epoch); err != nil {
				return err
			}
			s.printf("%s is free.\n", args[0])
			return s.printJSON(map[string]any{"name": args[0], "broken": epoch})
		})
	case action == "raise-epochs" && len(args) == 1:
		by, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || by < 1 {
			return usagef("%q is not a number of at least 1", args[0])
		}
		return s.withLeases(path, *table, func(m *leases.Manager) error {
			floor, err := m.RaiseEpochs(ctx, by)
			if err != nil {
				return err
			}
			s.printf("Every later grant has an epoch above %d.\n", floor)
			return s.printJSON(map[string]any{"floor": floor})
		})
	}
	return s.wrongUse()
}

// wrongUse shows how the command is called.
func (s *session) wrongUse() error {
	return usagef("want: coopsqlite %s %s", s.command.name, s.command.args)
}

// withLeases runs fn as the store's owner.
func (s *session) withLeases(path, table string, fn func(*leases.Manager) error) error {
	owner, err := s.openOwner(path, nil)
	if err != nil {
		return err
	}
	defer owner.close()
	return s.manage(owner, table, fn)
}

func (s *session) manage(st *store, table string, fn func(*leases.Manager) error) error {
	if there, err := st.hasTable(table); err != nil {
		return err
	} else if !there {
		return usagef("%s has no table %s", st.Path(), table)
	}
	m, err := leases.New(st.db, &leases.Options{Table: table})
	if err != nil {
		return err
	}
	defer m.Close()
	return fn(m)
}

func (s *session) listLeases(ctx context.Context, path, table, prefix string) error {
	reader, err := s.openReader(path)
	if err != nil {
		return err
	}
	defer reader.close()
	return s.manage(reader, table, func(m *leases.Manager) error {
		held := 0
		for info, err := range m.All(ctx, prefix) {
			if err != nil {
				return err
			}
			held++
			s.printf("%s\tby %s\tepoch %d\tsince %s\tuntil %s\n", info.Name, info.Owner, info.Epoch,
				info.Acquired.Format(time.RFC3339), info.Expires.Format(time.RFC3339))
			err := s.printJSON(leaseJSON{info.Name, info.Owner, info.Epoch, info.Acquired, info.Renewed, info.Expires})
			if err != nil {
				return err
			}
		}
		if held == 0 {
			s.printf("No lease is held.\n")
		}
		return nil
	})
}
