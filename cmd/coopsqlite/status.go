package main

import (
	"context"
	"time"

	"github.com/coopsqlite/coopsqlite"
)

// statusJSON is what status --json prints.
type statusJSON struct {
	Path          string             `json:"path"`
	Held          bool               `json:"held"`
	Holder        *coopsqlite.Holder `json:"holder"` // the last one, if not held
	Epoch         int64              `json:"epoch"`
	Tables        int                `json:"tables"`
	TablesFenced  int                `json:"tables_fenced"`
	TablesOpen    int                `json:"tables_open"`
	SchemaVersion int64              `json:"schema_version"`
	JournalMode   string             `json:"journal_mode"`
	Size          int64              `json:"size"`
}

func runStatus(ctx context.Context, s *session) error {
	args, err := s.parse(s.flags(), 1, 1)
	if err != nil {
		return err
	}
	reader, err := s.openReader(args[0])
	if err != nil {
		return err
	}
	defer reader.close()
	st, err := reader.Status(ctx)
	if err != nil {
		return err
	}
	out := statusJSON{st.Path, st.Held, nil, st.Epoch, st.Tables, st.TablesFenced, st.TablesOpen, st.SchemaVersion, st.JournalMode, st.Size}
	if st.Holder.PID != 0 {
		out.Holder = &st.Holder
	}
	if s.json {
		return s.printJSON(out)
	}
	s.printf("store     %s\n", st.Path)
	switch {
	case st.Held:
		s.printf("owner     %s\n", holderText(st.Holder))
	case st.Epoch == 0:
		s.printf("owner     none, ever\n")
	default:
		s.printf("owner     none; the last was %s\n", st.Holder)
	}
	s.printf("epoch     %d\n", st.Epoch)
	s.printf("tables    %d, of which %d fenced and %d open that should not be\n", st.Tables, st.TablesFenced, st.TablesOpen)
	s.printf("journal   %s\n", st.JournalMode)
	s.printf("size      %d bytes\n", st.Size)
	return nil
}

// tableJSON is one table of verify --json.
type tableJSON struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Tracked bool     `json:"tracked"`
	Missing []string `json:"missing,omitempty"`
	Why     string   `json:"why,omitempty"`
}

// verifyJSON is what verify --json prints.
type verifyJSON struct {
	Path     string      `json:"path"`
	Complete bool        `json:"complete"`
	Tables   []tableJSON `json:"tables"`
	Stray    []string    `json:"stray"`
}

func runVerify(ctx context.Context, s *session) error {
	args, err := s.parse(s.flags(), 1, 1)
	if err != nil {
		return err
	}
	reader, err := s.openReader(args[0])
	if err != nil {
		return err
	}
	defer reader.close()
	began := time.Now()
	coverage, err := reader.Verify(ctx)
	if err != nil {
		return err
	}
	out := verifyJSON{Path: reader.Path(), Complete: coverage.Complete(), Tables: []tableJSON{}, Stray: append([]string{}, coverage.Stray...)}
	for _, t := range coverage.Tables {
		out.Tables = append(out.Tables, tableJSON{t.Name, string(t.State), t.Tracked, t.Missing, t.Why})
	}
	if err := s.printJSON(out); err != nil {
		return err
	}
	s.printCoverage(out, time.Since(began))
	if !out.Complete {
		return errFinding
	}
	return nil
}

func (s *session) printCoverage(v verifyJSON, took time.Duration) {
	for _, t := range v.Tables {
		switch {
		case t.Tracked && len(t.Missing) > 0:
			s.printf("OPEN     %s: lacks", t.Name)
			for _, name := range t.Missing {
				s.printf(" %s", name)
			}
			s.printf("\n")
		case t.Tracked:
			s.printf("fenced   %s\n", t.Name)
		default:
			s.printf("-        %s: %s\n", t.Name, t.Why)
		}
	}
	for _, name := range v.Stray {
		s.printf("STRAY    trigger %s is not what its name says\n", name)
	}
	if v.Complete {
		s.printf("Every table that should be is fenced (looked in %s).\n", took.Round(10*time.Microsecond))
	} else {
		s.printf("Some tables are open: the next owner fences them, or \"coopsqlite fence %s\" does.\n", v.Path)
	}
}
