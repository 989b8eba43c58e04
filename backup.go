package coopsqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// BackupOptions refine [Store.Backup]; nil means the defaults.
type BackupOptions struct {
	// Plain makes an ordinary file of the copy, without fences and without
	// coop_owner. Otherwise the copy is fenced like the store: any program can
	// read it, and its first owner can write it.
	Plain bool
	// Progress, if set, is called after each step with the pages copied so far
	// and in all.
	Progress func(done, total int)
	// PagesPerStep is how many pages are copied between two looks at the
	// context; zero means 1,000.
	PagesPerStep int
}

// backupSuffix marks a copy that is not complete.
const backupSuffix = ".partial"

// Backup copies the store into a new file at dest while it is in use
// (https://sqlite.org/backup.html). The copy is the state of one moment. In WAL
// mode writers are not hindered; in the rollback-journal modes they wait at the
// gate until the copy is done.
//
// dest must not exist. The copy is written beside it under another name, synced
// and then renamed: whatever happens, dest is a complete copy or not there.
func (s *Store) Backup(ctx context.Context, dest string, options *BackupOptions) (err error) {
	if options == nil {
		options = &BackupOptions{}
	}
	dest, err = filepath.Abs(dest)
	if err != nil {
		return fmt.Errorf("coopsqlite: backup to %s: %w", dest, err)
	}
	if _, err := os.Lstat(dest); err == nil {
		return fmt.Errorf("coopsqlite: backup to %s: %w", dest, os.ErrExist)
	}
	partial := dest + backupSuffix
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("coopsqlite: backup to %s: another backup writes %s, or one was cut off and left it: remove it if no backup runs: %w", dest, partial, os.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("coopsqlite: backup to %s: %w", dest, err)
	}
	if err := file.Close(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
				_ = os.Remove(partial + suffix)
			}
		}
	}()
	if s.own.path != "" {
		if info, err := os.Stat(s.own.path); err == nil {
			_ = os.Chmod(partial, info.Mode().Perm())
		}
	}
	err = s.withConn(ctx, func(c *conn) error { return c.backup(ctx, partial, options) })
	if err != nil {
		return err
	}
	return publish(partial, dest)
}

// backup copies the connection's database into the file at path.
func (c *conn) backup(ctx context.Context, path string, options *BackupOptions) (err error) {
	release, err := c.pin(ctx)
	if err != nil {
		return err
	}
	defer release()
	opened, err := (&sqlite3.SQLiteDriver{}).Open("file:" + escapeURI(path) + "?mode=rw&_synchronous=FULL")
	if err != nil {
		return err
	}
	target := opened.(*sqlite3.SQLiteConn)
	defer func() { err = first(err, target.Close()) }()
	if err := copyPages(ctx, target, c.source, options); err != nil {
		return err
	}
	if !options.Plain {
		return nil
	}
	return strip(target)
}

// pin keeps the source still while it is copied: in WAL mode by a snapshot, in
// the others by holding the gate.
func (c *conn) pin(ctx context.Context) (release func(), err error) {
	mode, err := c.sh.Query("PRAGMA main.journal_mode")
	if err != nil {
		return nil, err
	}
	if len(mode) == 1 && mode[0] == "wal" {
		if _, err := c.sh.Begin(shim.Begin, false); err != nil {
			return nil, err
		}
		if _, err := c.sh.Query("SELECT 1 FROM main.sqlite_schema LIMIT 1"); err != nil {
			c.rollback()
			return nil, err
		}
		return c.rollback, nil
	}
	if c.own.mode == modeReader {
		return func() {}, nil
	}
	if err := c.takeGate(ctx); err != nil {
		return nil, err
	}
	return c.leave, nil
}

func copyPages(ctx context.Context, target, source *sqlite3.SQLiteConn, options *BackupOptions) (err error) {
	step := options.PagesPerStep
	if step <= 0 {
		step = 1000
	}
	b, err := target.Backup("main", source, "main")
	if err != nil {
		return err
	}
	defer func() { err = first(err, b.Finish()) }()
	for {
		done, err := b.Step(step)
		if err != nil {
			return err
		}
		if options.Progress != nil {
			options.Progress(b.PageCount()-b.Remaining(), b.PageCount())
		}
		if done {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// SQLITE_BUSY and SQLITE_LOCKED are no errors of a step: it is tried
		// again, a little later if nothing was copied.
		if b.Remaining() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// strip makes an ordinary file of a copy. The copy's triggers call functions
// that its connection lacks, which does not hinder dropping them.
func strip(target *sqlite3.SQLiteConn) error {
	sh, err := shim.Attach(target, nil, 0)
	if err != nil {
		return err
	}
	defer sh.Free()
	defer sh.Close()
	if err := sh.Exec("BEGIN"); err != nil {
		return err
	}
	if err := stripFences(sh.Query, sh.Exec); err != nil {
		return err
	}
	return sh.Exec("COMMIT")
}

// publish gives the finished copy its name, unless that has been taken.
func publish(partial, dest string) error {
	if err := syncFile(partial); err != nil {
		return err
	}
	if err := os.Link(partial, dest); err == nil {
		if err := os.Remove(partial); err != nil {
			return err
		}
	} else if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("coopsqlite: backup to %s: %w", dest, os.ErrExist)
	} else if err := os.Rename(partial, dest); err != nil { // no hard links here
		return err
	}
	return syncFile(filepath.Dir(dest))
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
