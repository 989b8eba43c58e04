package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coopsqlite/coopsqlite"
)

func runChanges(ctx context.Context, s *session) error {
	flags := s.flags()
	follow := flags.Bool("follow", false, "wait for further changes, until interrupted")
	table := flags.String("table", "", "only changes of table `T`")
	var since sinceFlag
	flags.Var(&since, "since", "begin after the change with this `SEQ`, or with those of this TIME: 2006-01-02, 2006-01-02T15:04:05Z, or 90m (ago)")
	args, err := s.parse(flags, 1, 1)
	if err != nil {
		return err
	}
	reader, err := s.openReader(args[0])
	if err != nil {
		return err
	}
	defer reader.close()
	after, err := since.seq(ctx, reader)
	if err != nil {
		return err
	}
	feed := reader.Changes
	if *follow {
		feed = reader.Follow
	}
	for change, err := range feed(ctx, after) {
		switch {
		case *follow && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil // that is how following ends
		case err != nil:
			return err
		case *table != "" && !strings.EqualFold(change.Table, *table):
			continue
		}
		if err := s.printJSON(change); err != nil {
			return err
		}
		s.printf("%s", describe(change))
	}
	return nil
}

// describe tells a change to people: when, who, where, and what became of what.
func describe(c coopsqlite.Change) string {
	var b strings.Builder
	actor := c.Actor
	if actor == "" {
		actor = "-"
	}
	fmt.Fprintf(&b, "%d  %s  %s  %s %s %s\n", c.Seq, c.Time.Local().Format("2006-01-02 15:04:05.000000"), actor, c.Op, c.Table, pairs(c.Key))
	for _, column := range c.New {
		old, was := c.Old.Get(column.Name)
		switch before, now := text(old), text(column.Value); {
		case !was:
			fmt.Fprintf(&b, "      %s: %s\n", column.Name, now)
		case before != now:
			fmt.Fprintf(&b, "      %s: %s -> %s\n", column.Name, before, now)
		}
	}
	if c.Op == coopsqlite.OpDelete {
		for _, column := range c.Old {
			fmt.Fprintf(&b, "      %s: %s\n", column.Name, text(column.Value))
		}
	}
	return b.String()
}

// pairs is a key on one line.
func pairs(row coopsqlite.Row) string {
	parts := make([]string, len(row))
	for i, c := range row {
		parts[i] = c.Name + "=" + text(c.Value)
	}
	return strings.Join(parts, " ")
}

// longest is how much of a value is shown to people.
const longest = 120

// text is a value as JSON writes it, shortened; control characters in it cannot
// reach the terminal.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return "NULL"
	case []byte:
		if len(v) > longest/2 {
			return fmt.Sprintf("x'%x…' (%d bytes)", v[:longest/2], len(v))
		}
		return fmt.Sprintf("x'%x'", v)
	case string:
		quoted := strconv.Quote(v)
		if runes := []rune(v); len(runes) > longest {
			quoted = fmt.Sprintf("%s… (%d characters)", strconv.Quote(string(runes[:longest])), len(runes))
		}
		return quoted
	}
	b, _ := json.Marshal(coopsqlite.Row{{Name: "v", Value: value}})
	return strings.TrimSuffix(strings.TrimPrefix(string(b), `{"v":`), "}")
}

// sinceFlag is where to begin: a change's number, or a time.
type sinceFlag struct {
	after int64
	at    time.Time
}

var _ flag.Value = (*sinceFlag)(nil)

func (f *sinceFlag) String() string { return "" }

func (f *sinceFlag) Set(value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
		f.after = n
		return nil
	}
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		f.at = time.Now().Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, value, time.Local); err == nil {
			f.at = t
			return nil
		}
	}
	return errors.New("neither a number of a change nor a time")
}

func (f *sinceFlag) seq(ctx context.Context, st *store) (int64, error) {
	if f.at.IsZero() {
		return f.after, nil
	}
	return st.SeqAt(ctx, f.at)
}
