package main

import (
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"strings"

	_ "github.com/mattn/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"

	_ "github.com/coopsqlite/coopsqlite"
	_ "github.com/coopsqlite/coopsqlite/bench/internal/ncrucesname"
)

// A contender is a driver with its settings. All have the same pragmas, spelt
// as their DSN wants them.
type contender struct {
	name   string
	driver string
	params string
	// split contenders write through a pool of one connection and read through
	// another pool, which is what mattn's users with many writers are told to do.
	split bool
}

// The pragmas of every contender. Their transactions that write begin with
// BEGIN IMMEDIATE, which is what spares them SQLITE_BUSY where it can be spared.
const (
	mattnParams  = "_journal_mode=WAL&_synchronous=NORMAL&_foreign_keys=on&_busy_timeout=10000&_txlock=immediate"
	pragmaParams = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(on)&_txlock=immediate"
)

var (
	coop        = contender{name: "coopsqlite", driver: "coopsqlite", params: mattnParams}
	coopOff     = contender{name: "coopsqlite, fence off", driver: "coopsqlite", params: mattnParams + "&_coop_fence=off&_coop_epoch=off"}
	coopChanges = contender{name: "coopsqlite, changes tracked", driver: "coopsqlite", params: mattnParams + "&_coop_changes=*"}
	mattn       = contender{name: "mattn", driver: "sqlite3", params: mattnParams}
	mattnCached = contender{name: "mattn, statement cache", driver: "sqlite3", params: mattnParams + "&_stmt_cache_size=128"}
	mattnSplit  = contender{name: "mattn, writer pool of 1", driver: "sqlite3", params: mattnParams + "&_stmt_cache_size=128", split: true}
	coopSplit   = contender{name: "coopsqlite, writer pool of 1", driver: "coopsqlite", params: mattnParams, split: true}
	modernc     = contender{name: "modernc", driver: "sqlite", params: pragmaParams}
	ncruces     = contender{name: "ncruces", driver: "ncruces", params: pragmaParams}
	zombiezen   = contender{name: "zombiezen"} // has no database/sql driver: see zombiezen.go
)

// full is the contender with synchronous=FULL: what is committed outlives a
// power failure.
func (c contender) full() contender {
	c.params = strings.NewReplacer("_synchronous=NORMAL", "_synchronous=FULL", "synchronous(NORMAL)", "synchronous(FULL)").Replace(c.params)
	return c
}

// pools are a store's connections. Unless the contender is split, both are the
// same pool, with database/sql's default settings.
type pools struct{ write, read *sql.DB }

func (p pools) close() error {
	err := p.write.Close()
	if p.read != p.write {
		err = errors.Join(err, p.read.Close())
	}
	return err
}

// open opens the store in dir.
func (c contender) open(dir string) (pools, error) {
	dsn := "file:" + filepath.Join(dir, "store.db") + "?" + c.params
	write, err := sql.Open(c.driver, dsn)
	if err != nil {
		return pools{}, err
	}
	p := pools{write, write}
	if c.split {
		write.SetMaxOpenConns(1)
		if err := write.Ping(); err != nil { // makes the file
			return pools{}, errors.Join(err, write.Close())
		}
		if p.read, err = sql.Open(c.driver, dsn+"&_query_only=1"); err != nil {
			return pools{}, errors.Join(err, write.Close())
		}
		p.read.SetMaxOpenConns(max(4, runtime.NumCPU()))
		p.read.SetMaxIdleConns(max(4, runtime.NumCPU()))
	}
	return p, nil
}

// each makes a subject of every contender: schema is run in its new store, then
// prepare makes the slice.
func each(schema string, prepare func(pools) (func() (sample, error), error), contenders ...contender) []subject {
	var subjects []subject
	for _, c := range contenders {
		subjects = append(subjects, subject{c.name, func(dir string) (*runner, error) {
			p, err := c.open(dir)
			if err != nil {
				return nil, err
			}
			if _, err := p.write.Exec(schema); err != nil {
				return nil, errors.Join(err, p.close())
			}
			slice, err := prepare(p)
			if err != nil {
				return nil, errors.Join(err, p.close())
			}
			return &runner{slice, p.close}, nil
		}})
	}
	return subjects
}
