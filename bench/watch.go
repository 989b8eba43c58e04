package main

import (
	"runtime"
	"syscall"
	"time"
)

// A watch is a moment on two clocks, the wall's and the processor's for this
// process, and the number of objects that were allocated until then.
type watch struct {
	mallocs uint64
	cpu     time.Duration
	wall    time.Time
}

// startWatch looks at the clocks last, and sample looks at them first, so that
// counting takes no time.
func startWatch() watch {
	return watch{mallocs: mallocs(), cpu: processorTime(), wall: time.Now()}
}

// sample is what has passed since, for so many operations.
func (w watch) sample(ops int) sample {
	s := sample{ops: ops, elapsed: time.Since(w.wall)}
	s.cpu = processorTime() - w.cpu
	s.mallocs = mallocs() - w.mallocs
	return s
}

// processorTime is what this process has used on all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // a system that does not tell; then -cpu measures nothing
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
