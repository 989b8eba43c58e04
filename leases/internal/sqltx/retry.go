package sqltx

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// IsBusy reports whether err is SQLite's refusal because another connection
// holds a lock. Every driver passes on SQLite's own message for SQLITE_BUSY,
// but no two agree on how to ask for the code.
// https://www.sqlite.org/rescode.html#busy
func IsBusy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "database is locked")
}

// SQLState is PostgreSQL's five-letter code of err; empty if it has none.
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// Retryable reports whether the transaction that ended with err was rolled
// back for a reason that may be gone at the next attempt.
func (d Dialect) Retryable(err error) bool {
	if d == SQLite {
		return IsBusy(err)
	}
	switch SQLState(err) {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return true
	}
	return false
}

// pause waits before the next attempt, longer each time and never in step
// with others; it reports false if ctx ended first.
func pause(ctx context.Context, attempt int) bool {
	limit := time.Millisecond << min(attempt, 5)
	timer := time.NewTimer(limit/2 + rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
