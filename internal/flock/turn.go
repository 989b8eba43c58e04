//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package flock

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Bytes of the lock file that serve as the two locks of a turn. They lie far
// behind the content; a range lock needs no bytes to exist.
const (
	queueByte = 1 << 30
	turnByte  = queueByte + 1
)

// turnPoll is how often a waiting writer looks. One writer at a time waits for
// the turn itself (the others wait for the queue), so the file is not crowded.
const turnPoll = 500 * time.Microsecond

// TakeTurn waits until no other member of a shared group writes, so that
// SQLite's own polling, which starves the unlucky, has nothing to decide: take
// the queue, take the turn, leave the queue. The turn is advice: after limit,
// or when ctx ends, the caller goes on without it. The returned function gives
// the turn back.
func (l *File) TakeTurn(ctx context.Context, limit time.Duration) (done func()) {
	none := func() {}
	deadline := time.Now().Add(limit)
	if !l.waitRange(ctx, queueByte, deadline) {
		return none
	}
	took := l.waitRange(ctx, turnByte, deadline)
	l.setRange(queueByte, syscall.F_UNLCK)
	if !took {
		return none
	}
	return func() { l.setRange(turnByte, syscall.F_UNLCK) }
}

func (l *File) waitRange(ctx context.Context, at int64, deadline time.Time) bool {
	for {
		err := l.setRange(at, syscall.F_WRLCK)
		if err == nil {
			return true
		}
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) || time.Now().After(deadline) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(turnPoll):
		}
	}
}

// setRange changes one of the two locks. The file may be closed meanwhile, by
// the closing of the pool a writer belongs to: then there is nothing to change.
func (l *File) setRange(at int64, kind int16) error {
	raw, err := l.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = syscall.FcntlFlock(fd, setRangeLock, &syscall.Flock_t{Type: kind, Start: at, Len: 1})
	}); err != nil {
		return err
	}
	return failed
}
