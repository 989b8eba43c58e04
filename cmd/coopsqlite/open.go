package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coopsqlite/coopsqlite"
)

// store is an open store.
type store struct {
	*coopsqlite.Store
	db *sql.DB
}

func (s *store) close() error { return s.db.Close() }

// openReader opens the store beside its owner, whoever that is.
func (s *session) openReader(path string) (*store, error) {
	return s.open(path, url.Values{"mode": {"ro"}})
}

// openOwner takes the ownership, with the settings that the store's last owner
// had: the command must not change which tables are fenced by passing by.
func (s *session) openOwner(path string, change url.Values) (*store, error) {
	params, err := s.settings(path)
	if err != nil {
		return nil, err
	}
	for name, value := range change {
		params[name] = value
	}
	params.Set("_coop_app", "coopsqlite "+s.command.name)
	if s.actor != "" {
		params.Set("_coop_actor", s.actor)
	}
	opened, err := s.open(path, params)
	if s.wait <= 0 || !errors.Is(err, coopsqlite.ErrConflict) {
		return opened, err
	}
	var conflict *coopsqlite.ConflictError
	errors.As(err, &conflict)
	s.progress("Waiting up to %s for %s", s.wait, conflict.Holder)
	defer s.progress("")
	params.Set("_coop_wait", s.wait.String())
	return s.open(path, params)
}

func (s *session) open(path string, params url.Values) (*store, error) {
	if err := mustExist(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("coopsqlite", "file:"+url.PathEscape(path)+"?"+params.Encode())
	if err != nil {
		return nil, err
	}
	st, err := coopsqlite.StoreOf(db)
	if err == nil {
		err = db.Ping()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &store{st, db}, nil
}

// mustExist keeps a mistyped name from becoming a new store.
func mustExist(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("there is no store %s", path)
	case err != nil:
		return &usageError{err.Error()}
	case info.IsDir():
		return usagef("%s is a directory: a store is one file", path)
	}
	return nil
}

// settings reads those that the store's last owner left, as parameters of a
// DSN; none if there was no owner.
func (s *session) settings(path string) (url.Values, error) {
	reader, err := s.openReader(path)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	params := url.Values{}
	there, err := reader.hasTable("coop_owner")
	if err != nil || !there {
		return params, err
	}
	var text string
	if err := reader.db.QueryRow("SELECT settings FROM coop_owner").Scan(&text); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return params, err
	}
	var stored struct {
		Fence, Epoch, Virtual *bool
		Tables, Changes       string
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, fmt.Errorf("the settings in coop_owner: %w", err)
	}
	for name, on := range map[string]*bool{"_coop_fence": stored.Fence, "_coop_epoch": stored.Epoch, "_coop_virtual": stored.Virtual} {
		if on != nil {
			params.Set(name, map[bool]string{true: "on", false: "off"}[*on])
		}
	}
	for name, value := range map[string]string{"_coop_tables": stored.Tables, "_coop_changes": stored.Changes} {
		if value != "" {
			params.Set(name, value)
		}
	}
	return params, nil
}

func (s *store) hasTable(name string) (there bool, err error) {
	err = s.db.QueryRow("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?)", name).Scan(&there)
	return there, err
}

// holderText describes an owner to people.
func holderText(h coopsqlite.Holder) string {
	text := h.String()
	if !h.Since.IsZero() {
		text += fmt.Sprintf(" (%s ago)", time.Since(h.Since).Round(time.Second))
	}
	return strings.TrimSpace(text)
}
