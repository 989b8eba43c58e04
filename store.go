package coopsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Store is the store behind a pool: what it is called, who owns it, and what
// can be done to it as a whole.
type Store struct {
	own       *ownership
	connector *Connector
	group     group

	mu     sync.Mutex
	db     *sql.DB // the store's own pool, for Write and Bulk
	closed bool
}

// ErrNotCoop says that a sql.DB is not one of this driver's.
var ErrNotCoop = errors.New("coopsqlite: this sql.DB does not use the coopsqlite driver")

// storeOfLimit bounds how long StoreOf waits for a connection of the pool; the
// caller may be holding the only one.
const storeOfLimit = 5 * time.Second

// StoreOf returns the store behind db, also through instrumenting wrappers;
// for those it takes a connection of the pool for a moment.
func StoreOf(db *sql.DB) (*Store, error) {
	if d, ok := db.Driver().(*Driver); ok && d.store != nil {
		return d.store, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeOfLimit)
	defer cancel()
	sqlConn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("coopsqlite: looking for the store behind a wrapped pool: %w", err)
	}
	defer sqlConn.Close()
	var store *Store
	err = sqlConn.Raw(func(driverConn any) error {
		c := connOf(driverConn)
		if c == nil {
			return ErrNotCoop
		}
		store = c.connector.store
		return nil
	})
	return store, err
}

// Path is the real path of the store's file; empty for a database in memory.
func (s *Store) Path() string { return s.own.path }

// Mode is the kind of ownership: exclusive, process, shared, reader or memory.
func (s *Store) Mode() string { return s.own.mode }

// Epoch is the number of this ownership, one more than that of the owner
// before; zero for a reader.
func (s *Store) Epoch() int64 { return s.own.epoch.Load() }

// Stats returns what this ownership has counted in this process.
func (s *Store) Stats() Stats {
	st := s.own.counters.snapshot()
	st.Waiting = s.own.gate.waiting()
	st.GateWaits = s.own.gate.waits.snapshot()
	st.Lost = s.own.lost.Load() != nil
	s.connector.mu.Lock()
	st.Parked = int64(len(s.connector.parked))
	s.connector.mu.Unlock()
	return st
}

// close ends the store's own pool; a transaction that is open there is refused
// its commit, like any other.
func (s *Store) close() {
	s.group.shut()
	s.own.commits.fire() // ends Follow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.db != nil {
		_ = s.db.Close()
	}
}
