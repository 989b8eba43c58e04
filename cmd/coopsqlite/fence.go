package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/coopsqlite/coopsqlite"
)

// fenceJSON is what fence and unfence --json print.
type fenceJSON struct {
	Path         string `json:"path"`
	Fenced       bool   `json:"fenced"`
	Epoch        int64  `json:"epoch"`
	TablesFenced int    `json:"tables_fenced"`
}

func runFence(ctx context.Context, s *session) error {
	flags := s.ownerFlags()
	change := url.Values{}
	for name, usage := range map[string]string{
		"tables":  "which tables: *, or `names` separated by commas, -name for all but that",
		"epoch":   "`on` or off: refuse owners that were taken over; off for stores shared with other Coop engines",
		"changes": "record changes of these tables: off, *, or `names`",
		"virtual": "`on` or off: fence full-text tables too",
	} {
		flags.Func(name, usage+" (default: as the last owner had it)", func(value string) error {
			change.Set("_coop_"+name, value)
			return nil
		})
	}
	args, err := s.parse(flags, 1, 1)
	if err != nil {
		return err
	}
	if err := checkSettings(change); err != nil {
		return err
	}
	change.Set("_coop_fence", "on")
	owner, err := s.openOwner(args[0], change)
	if err != nil {
		return err
	}
	defer owner.close()
	if err := owner.Refence(ctx); err != nil {
		return err
	}
	st, err := owner.Status(ctx)
	if err != nil {
		return err
	}
	s.printf("%s is fenced: %d of its %d tables.\n", st.Path, st.TablesFenced, st.Tables)
	return s.printJSON(fenceJSON{st.Path, true, st.Epoch, st.TablesFenced})
}

// checkSettings tells a wrong value from a store that cannot be opened.
func checkSettings(change url.Values) error {
	c, err := coopsqlite.NewConnector(":memory:?"+change.Encode(), nil)
	if err != nil {
		return &usageError{strings.TrimPrefix(err.Error(), "coopsqlite: ")}
	}
	return c.Close()
}

func runUnfence(ctx context.Context, s *session) error {
	args, err := s.parse(s.ownerFlags(), 1, 1)
	if err != nil {
		return err
	}
	owner, err := s.openOwner(args[0], nil)
	if err != nil {
		return err
	}
	defer owner.close()
	epoch := owner.Epoch()
	if err := owner.Unfence(ctx); err != nil {
		return err
	}
	s.printf("%s is an ordinary file. Its next owner fences it again.\n", owner.Path())
	return s.printJSON(fenceJSON{owner.Path(), false, epoch, 0})
}
