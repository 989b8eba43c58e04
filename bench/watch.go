package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// A watch is a moment on two clocks: the wall's, and the processor's for this
// process.
type watch struct {
	wall time.Time
	cpu  time.Duration
}

func startWatch() watch { return watch{time.Now(), processorTime()} }

// sample is what has passed since, for so many operations.
func (w watch) sample(ops int) sample {
	return sample{ops: ops, elapsed: time.Since(w.wall), cpu: processorTime() - w.cpu}
}

// processorTime is what this process has used on all processors.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0 // a system without that clock; then -cpu measures nothing
	}
	return time.Duration(t.Nano())
}
