package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite"
)

func runExec(ctx context.Context, s *session) error {
	flags := s.ownerFlags()
	autocommit := flags.Bool("autocommit", false, "run each statement by itself, not all in one transaction (VACUUM and PRAGMA journal_mode need it)")
	args, err := s.parse(flags, 1, -1)
	if err != nil {
		return err
	}
	text := strings.Join(args[1:], ";\n")
	if len(args) == 1 {
		input, err := io.ReadAll(s.in)
		if err != nil {
			return err
		}
		text = string(input)
	}
	if strings.TrimSpace(text) == "" {
		return usagef("no SQL, neither as arguments nor on standard input")
	}

	// What only reads needs no ownership. A reader refuses everything else,
	// in the attached databases too, before it has changed anything.
	reader, err := s.open(args[0], url.Values{"mode": {"ro"}, "_query_only": {"1"}})
	if err != nil {
		return err
	}
	err = s.execOn(ctx, reader.db, text, *autocommit)
	reader.close()
	if !isReadonly(err) {
		return err
	}
	owner, err := s.openOwner(args[0], nil)
	if err != nil {
		return err
	}
	defer owner.close()
	if s.actor != "" {
		ctx = coopsqlite.WithMetadata(ctx, "actor", s.actor)
	}
	return s.execOn(ctx, owner.db, text, *autocommit)
}

func isReadonly(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrReadonly
}

// querier is a pool's connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// execOn runs all statements and prints the rows of the last. They are one
// transaction unless autocommit.
func (s *session) execOn(ctx context.Context, db *sql.DB, text string, autocommit bool) error {
	if autocommit {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return s.query(ctx, c, text)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := s.query(ctx, tx, text); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *session) query(ctx context.Context, on querier, text string) error {
	rows, err := on.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if len(columns) > 0 {
		s.printf("%s\n", strings.Join(columns, "\t"))
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := s.printRow(columns, values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// printRow prints tab-separated values, or an object with --json, in which
// blobs are base64.
func (s *session) printRow(columns []string, values []any) error {
	if s.json {
		row := make(map[string]any, len(columns))
		for i, name := range columns {
			row[name] = values[i]
		}
		return s.printJSON(row)
	}
	for i, v := range values {
		if i > 0 {
			s.printf("\t")
		}
		switch v := v.(type) {
		case nil:
			s.printf("NULL")
		case []byte:
			s.printf("x'%x'", v)
		default:
			s.printf("%s", fmt.Sprint(v))
		}
	}
	s.printf("\n")
	return nil
}
