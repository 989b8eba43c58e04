// Command coopsqlite looks after stores that have exactly one writer: who owns
// one, whether every table is fenced, a backup, a statement, the changes, the
// leases and the outbox in it. "coopsqlite demo" shows what a fence does.
//
// It reads beside a running owner. Where it must write, it takes the store's
// ownership, and says who has it if it cannot.
//
// The exit status is 0 if all is fine, 1 for a finding or a failure, 2 for
// wrong use, and 3 if another owner has the store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/coopsqlite/coopsqlite"
)

// Exit statuses.
const (
	exitFine    = 0
	exitFinding = 1
	exitUsage   = 2
	exitOwned   = 3
)

// command is one subcommand.
type command struct {
	name    string
	args    string // what comes after the name, for the usage
	summary string
	run     func(ctx context.Context, s *session) error
}

// commands are all subcommands, in the order in which they are shown.
func commands() []command {
	return []command{
		{"demo", "", "make a store in a temporary folder and show what its fence does", runDemo},
		{"status", "STORE", "who owns the store, and how it is fenced", runStatus},
		{"verify", "STORE", "check the fence of every table; a table that is open is a finding", runVerify},
		{"fence", "STORE", "fence the store's tables, or complete the fences", runFence},
		{"unfence", "STORE", "make an ordinary file of the store", runUnfence},
		{"exec", "STORE [SQL ...]", "run SQL, from the arguments or from standard input", runExec},
		{"backup", "STORE DEST", "copy the store while it is in use", runBackup},
		{"changes", "STORE", "what was changed, by whom, and what became of what; of a store with change tracking", runChanges},
		{"leases", "STORE [break NAME EPOCH | raise-epochs N]", "list the leases that are held, or take one from a dead holder", runLeases},
		{"outbox", "STORE [dead | requeue ID ... | discard ID ...]", "how far the deliveries are behind, and what to do with dead events", runOutbox},
	}
}

func main() {
	if role, ok := os.LookupEnv(demoRole); ok {
		os.Exit(playDemoRole(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s := &session{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stderr)}
	status := run(ctx, s, os.Args[1:])
	stop()
	os.Exit(status)
}

// run finds the subcommand and turns what it returns into an exit status.
func run(ctx context.Context, s *session, args []string) int {
	list := commands()
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		out, status := s.out, exitFine
		if len(args) == 0 {
			out, status = s.err, exitUsage
		}
		printUsage(out, list)
		return status
	}
	i := slices.IndexFunc(list, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		fmt.Fprintf(s.err, "coopsqlite: there is no command %q\n\n", args[0])
		printUsage(s.err, list)
		return exitUsage
	}
	s.command, s.args = list[i], args[1:]
	return s.report(list[i].run(ctx, s))
}

func printUsage(out io.Writer, list []command) {
	var b strings.Builder
	b.WriteString("coopsqlite makes \"this SQLite store has exactly one writer\" true.\n\nUsage: coopsqlite COMMAND ...\n\n")
	for _, c := range list {
		fmt.Fprintf(&b, "  %-9s%s\n", c.name, c.summary)
	}
	b.WriteString("\n\"coopsqlite COMMAND -h\" tells more. Exit status: 0 fine, 1 a finding or a failure,\n2 wrong use, 3 owned by another.\n")
	io.WriteString(out, b.String())
}

// errFinding ends a command that has printed what is wrong.
var errFinding = errors.New("a finding")

// usageError is a command that was called wrongly.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// report prints a command's error and returns its exit status.
func (s *session) report(err error) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitFine
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "coopsqlite %s: %s\n", s.command.name, usage.message)
		return exitUsage
	case errors.Is(err, coopsqlite.ErrConflict):
		fmt.Fprintln(s.err, err)
		return exitOwned
	}
	fmt.Fprintf(s.err, "coopsqlite %s: %s\n", s.command.name, strings.TrimPrefix(err.Error(), "coopsqlite: "))
	return exitFinding
}
