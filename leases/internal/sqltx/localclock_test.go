package sqltx_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
	"github.com/coopsqlite/coopsqlite/leases/leasetest"
)

func TestLongestWaitOnAnInjectedClockDoesNotEndAtOnce(t *testing.T) {
	clock := leasetest.NewClock(time.Now())
	clock.Advance(time.Hour) // a reading to which the longest duration cannot be added
	fired, stop := sqltx.NewLocalClock(clock).After(math.MaxInt64)
	defer stop()
	select {
	case <-fired:
		require.Fail(t, "it ended")
	default:
	}
}
