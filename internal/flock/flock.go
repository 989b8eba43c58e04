//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Package flock holds the advisory lock on a store's sidecar file
// (flock(2): one lock per open file description, dropped by the kernel when
// the process ends).
package flock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrHeld says that another open file description holds a conflicting lock.
var ErrHeld = errors.New("the lock is held")

// ErrNotRegular says that the lock's path is no regular file of its own: a
// symbolic link, a directory, a device, or a file with a second name.
var ErrNotRegular = errors.New("not a regular file")

// Mode is how a lock is shared.
type Mode int

const (
	Exclusive Mode = syscall.LOCK_EX
	Shared    Mode = syscall.LOCK_SH
)

// File is a held lock.
type File struct {
	f       *os.File
	path    string
	created bool
}

// maxContent bounds what is read of a lock file, which anybody may have written.
const maxContent = 4 << 10

// Acquire opens or creates the lock file of the store at storePath and takes
// the lock, without waiting: [ErrHeld] when another has it, the error of the
// operating system otherwise.
//
// The file is opened without following a link and is never unlinked once a
// store is owned. The inode is compared after the lock is held: a file that
// was replaced between open and flock would be a lock on nothing.
func Acquire(path, storePath string, mode Mode) (*File, error) {
	for {
		l, err := open(path, storePath)
		if err != nil {
			return nil, err
		}
		if err := lock(l.f, int(mode)|syscall.LOCK_NB); err != nil {
			l.Discard(nil)
			return nil, err
		}
		current, err := l.Current()
		if err != nil {
			l.f.Close()
			return nil, err
		}
		if current {
			return l, nil
		}
		l.f.Close()
	}
}

func open(path, storePath string) (*File, error) {
	const flags = os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	created := false
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		created = true
		f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) { // somebody was faster
			created = false
			f, err = os.OpenFile(path, flags, 0)
		}
	}
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) || errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	l := &File{f: f, path: path, created: created}
	if err := l.admit(storePath); err != nil {
		l.Discard(nil)
		return nil, err
	}
	return l, nil
}

// admit checks what was opened and gives it the mode and the owner it needs,
// so that whoever may write the store may also lock it.
func (l *File) admit(storePath string) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(l.f.Fd()), &st); err != nil {
		return &fs.PathError{Op: "fstat", Path: l.path, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Nlink > 1 {
		return fmt.Errorf("%s: %w", l.path, ErrNotRegular)
	}
	var store syscall.Stat_t
	known := storePath != "" && syscall.Stat(storePath, &store) == nil
	if l.created {
		mode := fs.FileMode(0o600)
		if known && store.Mode&0o020 != 0 {
			mode |= 0o060
		}
		if known && store.Mode&0o002 != 0 {
			mode |= 0o006
		}
		if err := l.f.Chmod(mode); err != nil {
			return err
		}
	}
	// A run by root must not lock the store's own user out for ever.
	if known && os.Geteuid() == 0 && (st.Uid != store.Uid || st.Gid != store.Gid) {
		return l.f.Chown(int(store.Uid), int(store.Gid))
	}
	return nil
}

func lock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		}
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
}

// Current reports whether the path still leads to the locked file.
func (l *File) Current() (bool, error) {
	held, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(held, named), nil
}

// Write replaces the content, which is for people and for messages only.
func (l *File) Write(content []byte) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt(content, 0)
	return err
}

// Content is what the file holds now.
func (l *File) Content() []byte {
	b, _ := io.ReadAll(io.NewSectionReader(l.f, 0, maxContent))
	return b
}

// Release empties the file (unless it is shared, where others still hold it)
// and gives the lock back.
func (l *File) Release(clear bool) error {
	if clear {
		_ = l.f.Truncate(0) // the lock is what counts
	}
	return l.f.Close()
}

// Discard gives the lock back after a failed open. If nobody else has a share
// in it, undo is called (it may be nil), and the file is removed if this call
// made it. Whoever opened it meanwhile finds another inode at the path, or
// none, and starts over.
func (l *File) Discard(undo func()) {
	// Without anything to undo, the lock would be in somebody else's way.
	if (undo != nil || l.created) && !errors.Is(lock(l.f, syscall.LOCK_EX|syscall.LOCK_NB), ErrHeld) {
		if undo != nil {
			undo()
		}
		if l.created {
			os.Remove(l.path)
		}
	}
	l.f.Close()
}

// Read returns the content of a lock file that somebody else holds.
func Read(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxContent))
	return b
}
