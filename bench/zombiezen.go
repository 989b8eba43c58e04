package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// zombiezen.com/go/sqlite has no database/sql driver; it takes part through its
// own API, without the cost of database/sql.

type zombieStore struct{ pool *sqlitex.Pool }

func openZombiezen(dir string) (store, error) {
	pool, err := sqlitex.NewPool("file:"+filepath.Join(dir, "store.db"), sqlitex.PoolOptions{
		PoolSize: 16,
		PrepareConn: func(conn *sqlite.Conn) error {
			for _, pragma := range []string{"busy_timeout=10000", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=on"} {
				if err := sqlitex.ExecuteTransient(conn, "PRAGMA "+pragma, nil); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return &zombieStore{pool}, nil
}

func (s *zombieStore) close() error { return s.pool.Close() }

// with lends fn a connection of the pool.
func (s *zombieStore) with(fn func(*sqlite.Conn) error) error {
	conn, err := s.pool.Take(context.Background())
	if err != nil {
		return err
	}
	defer s.pool.Put(conn)
	return fn(conn)
}

func (s *zombieStore) exec(query string, args ...any) error {
	return s.with(func(conn *sqlite.Conn) error {
		prepared, err := zombieTx{conn}.prepare(query)
		if err != nil {
			return err
		}
		return prepared.exec(args...)
	})
}

func (s *zombieStore) tx(fn func(tx) error) error {
	return s.with(func(conn *sqlite.Conn) (err error) {
		end, err := sqlitex.ImmediateTransaction(conn)
		if err != nil {
			return err
		}
		defer end(&err)
		return fn(zombieTx{conn})
	})
}

func (s *zombieStore) query(query string, args []any, row func(func(...any) error) error) error {
	return s.with(func(conn *sqlite.Conn) error {
		prepared, err := conn.Prepare(query)
		if err != nil {
			return err
		}
		defer prepared.Reset()
		if err := bind(prepared, args); err != nil {
			return err
		}
		scan := func(dest ...any) error { return scanColumns(prepared, dest) }
		for {
			more, err := prepared.Step()
			if err != nil || !more {
				return err
			}
			if err := row(scan); err != nil {
				return err
			}
		}
	})
}

type zombieTx struct{ conn *sqlite.Conn }

// prepare takes the statement from the connection's cache, if it is there.
func (t zombieTx) prepare(query string) (stmt, error) {
	s, err := t.conn.Prepare(query)
	return zombieStmt{s}, err
}

type zombieStmt struct{ *sqlite.Stmt }

func (s zombieStmt) exec(args ...any) error {
	if err := bind(s.Stmt, args); err != nil {
		return err
	}
	for {
		if more, err := s.Step(); err != nil || !more {
			return errors.Join(err, s.Reset())
		}
	}
}

func bind(s *sqlite.Stmt, args []any) error {
	for i, arg := range args {
		switch v := arg.(type) {
		case int:
			s.BindInt64(i+1, int64(v))
		case int64:
			s.BindInt64(i+1, v)
		case string:
			s.BindText(i+1, v)
		case []byte:
			s.BindBytes(i+1, v)
		default:
			return fmt.Errorf("argument of type %T", arg)
		}
	}
	return nil
}

func scanColumns(s *sqlite.Stmt, dest []any) error {
	for i, d := range dest {
		switch v := d.(type) {
		case *int64:
			*v = s.ColumnInt64(i)
		case *string:
			*v = s.ColumnText(i)
		case *[]byte:
			*v = make([]byte, s.ColumnLen(i))
			s.ColumnBytes(i, *v)
		default:
			return fmt.Errorf("destination of type %T", d)
		}
	}
	return nil
}

func zombiezenVersion(query string) (version string, err error) {
	conn, err := sqlite.OpenConn(":memory:")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		version = s.ColumnText(0)
		return nil
	}})
	return version, err
}
