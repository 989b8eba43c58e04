package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines is a writer that main's goroutine and the relay's may use at once.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// of returns the lines that begin so, or all others.
func (l *lines) of(prefix string, with bool) []string {
	var found []string
	for line := range strings.Lines(l.all.String()) {
		if strings.HasPrefix(line, prefix) == with {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestLastSeatsGoToThoseWhoPayInTime(t *testing.T) {
	var out lines
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "show.db"), 1500*time.Millisecond, &out))
	require.Equal(t, []string{
		"ada asks for a seat: accepted",
		"ada pays: refused card",
		"ada has a seat",
		"bob asks for a seat: accepted",
		"cleo asks for a seat: insufficient",
		"cleo asks for a seat: accepted",
		"cleo has a seat",
		"bob gets the money back: hold expired",
	}, out.of("event", false))
	// Each customer's events come in order.
	for customer, kinds := range map[string][]string{
		"ada": {"seat.held", "seat.sold"}, "bob": {"seat.held"}, "cleo": {"seat.held", "seat.sold"},
	} {
		var want, got []string
		for _, kind := range kinds {
			want = append(want, `event `+kind+` {"customer":"`+customer+`"}`)
		}
		for _, line := range out.of("event", true) {
			if strings.Contains(line, customer) {
				got = append(got, line)
			}
		}
		require.Equal(t, want, got)
	}
}
