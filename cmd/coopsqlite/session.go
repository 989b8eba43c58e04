package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// session is one run of a subcommand: where it reads and prints, and the flags
// that all have.
type session struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // somebody is watching err
	command  command
	args     []string

	json  bool
	wait  time.Duration
	actor string
}

// parse reads flags, which may stand before, between and after the other
// arguments, until "--". It returns the others; there must be between least
// and most of them (any number for a negative most).
func (s *session) parse(flags *flag.FlagSet, least, most int) ([]string, error) {
	flags.BoolVar(&s.json, "json", false, "print JSON")
	flags.SetOutput(io.Discard)
	var rest []string
	for args := s.args; ; {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				s.help(flags)
				return nil, err
			}
			return nil, &usageError{err.Error()}
		}
		left := flags.Args()
		if len(left) == 0 {
			break
		}
		if at := len(args) - len(left); at > 0 && args[at-1] == "--" {
			rest = append(rest, left...)
			break
		}
		rest = append(rest, left[0])
		args = left[1:]
	}
	if len(rest) < least || most >= 0 && len(rest) > most {
		return nil, usagef("want: coopsqlite %s %s", s.command.name, s.command.args)
	}
	return rest, nil
}

// flags are the command's, without those for owners.
func (s *session) flags() *flag.FlagSet {
	return flag.NewFlagSet(s.command.name, flag.ContinueOnError)
}

// ownerFlags are the flags of a command that may take the ownership.
func (s *session) ownerFlags() *flag.FlagSet {
	flags := s.flags()
	flags.DurationVar(&s.wait, "wait", 0, "how `long` to wait for the present owner to go")
	flags.StringVar(&s.actor, "actor", "", "`name` that changes are recorded under")
	return flags
}

func (s *session) help(flags *flag.FlagSet) {
	fmt.Fprintf(s.out, "Usage: coopsqlite %s [flags] %s\n\n%s.\n\n", s.command.name, s.command.args, s.command.summary)
	flags.SetOutput(s.out)
	flags.PrintDefaults()
}

// printf prints for people; with --json nothing but JSON is printed.
func (s *session) printf(format string, args ...any) {
	if !s.json {
		fmt.Fprintf(s.out, format, args...)
	}
}

// printJSON prints one value, if --json was given.
func (s *session) printJSON(v any) error {
	if !s.json {
		return nil
	}
	return json.NewEncoder(s.out).Encode(v)
}

// progress overwrites one line on a terminal; elsewhere it prints nothing.
// Without arguments it wipes the line.
func (s *session) progress(format string, args ...any) {
	if s.terminal {
		fmt.Fprintf(s.err, "\r\033[K"+format, args...)
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
