package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Table is a table of the library: its name and the statements that create
// it and its indexes, each written so that it does nothing where it ran
// before (IF NOT EXISTS). Statements are separated by ";\n".
type Table struct {
	Name             Name
	SQLite, Postgres string
}

func (t Table) ddl(d Dialect) string {
	if d == Postgres {
		return t.Postgres
	}
	return t.SQLite
}

// schemaLock is the advisory lock under which tables are created:
// PostgreSQL's CREATE TABLE IF NOT EXISTS fails when two run at once.
const schemaLock = 0x636f6f70_6c656173 // "coopleas"

// Schema is the DDL of tables for someone who creates them by migration.
func Schema(d Dialect, tables ...Table) string {
	var b strings.Builder
	for _, t := range withAnchor(d, tables) {
		b.WriteString(t.ddl(d))
		b.WriteString(";\n")
	}
	return b.String()
}

func withAnchor(d Dialect, tables []Table) []Table {
	if d == SQLite {
		return append([]Table{anchor}, tables...)
	}
	return tables
}

// Ensure creates the tables that are missing. Where none is, it runs no DDL,
// and writes nothing but the clock's anchor.
func (s *Store) Ensure(ctx context.Context, tables ...Table) error {
	if err := s.ensure(ctx, tables...); err != nil {
		return err
	}
	return s.fixAnchor(ctx)
}

func (s *Store) ensure(ctx context.Context, tables ...Table) error {
	tables = withAnchor(s.dialect, tables)
	var missing []Table
	for _, t := range tables {
		there, err := s.exists(ctx, t.Name)
		if err != nil {
			return fmt.Errorf("look for table %s: %w", t.Name, err)
		}
		if !there {
			missing = append(missing, t)
		}
	}
	if missing == nil {
		return nil
	}
	for attempt := 0; ; attempt++ {
		err := s.create(ctx, missing)
		if err == nil || !s.dialect.Retryable(err) || !pause(ctx, attempt) {
			return err
		}
	}
}

func (s *Store) create(ctx context.Context, missing []Table) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if s.dialect == Postgres {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(schemaLock)); err != nil {
			return err
		}
	}
	for _, t := range missing {
		for statement := range strings.SplitSeq(t.ddl(s.dialect), ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("create table %s: %w", t.Name, err)
			}
		}
	}
	return tx.Commit()
}

func (s *Store) exists(ctx context.Context, name Name) (bool, error) {
	if s.dialect == Postgres {
		var there bool
		err := s.db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, name.String()).Scan(&there)
		return there, err
	}
	catalogue := "sqlite_master"
	if name.schema != "" {
		catalogue = quote(name.schema) + "." + catalogue
	}
	var one int
	err := s.db.QueryRowContext(ctx, `SELECT 1 FROM `+catalogue+` WHERE type = 'table' AND name = ? COLLATE NOCASE`, name.table).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
