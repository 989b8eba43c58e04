package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// A workload is one piece of work, done by several subjects side by side.
type workload struct {
	family string // groups rows of the report
	name   string
	what   string // one sentence: what is done and what is timed
	unit   string // what one operation is called

	// baseline is the subject that the others are compared with.
	baseline string
	subjects []subject
	budgets  []budget
	// slices is how often each subject takes its turn within a round.
	slices int
	// keep opens the subjects once, not for every round: for stores that take
	// long to fill.
	keep bool
	// waits marks work that waits for disks or for others: what it costs is not
	// to be had from the processor's clock.
	waits bool
	// skip says why the workload cannot run; empty if it can.
	skip string
	// measures is what the samples hold: times, or a value of their own.
	measures unit
}

// A subject is one contender at one workload.
type subject struct {
	name string
	// open prepares the subject in an empty directory, outside the clock.
	open func(dir string) (*runner, error)
}

// A runner is a subject that is ready to run.
type runner struct {
	slice func() (sample, error)
	close func() error
}

// A sample is what slices have measured.
type sample struct {
	ops       int
	elapsed   time.Duration   // by the wall clock
	cpu       time.Duration   // spent by this process
	mallocs   uint64          // objects allocated by Go
	latencies []time.Duration // of single operations, where the workload takes them
	busy      int             // operations that failed with SQLITE_BUSY
	failed    int             // operations that failed otherwise
	value     float64         // of workloads that measure something other than time
	slices    []float64       // the seconds per operation of each slice
}

// add takes in another slice.
func (s *sample) add(slice sample) {
	s.join(slice)
	s.slices = append(s.slices, slice.elapsed.Seconds()/float64(max(slice.ops, 1)))
}

// join makes one of two parts of a slice.
func (s *sample) join(more sample) {
	s.ops += more.ops
	s.elapsed += more.elapsed
	s.cpu += more.cpu
	s.mallocs += more.mallocs
	s.latencies = append(s.latencies, more.latencies...)
	s.busy += more.busy
	s.failed += more.failed
	s.value += more.value
}

// perOp is the time of one operation in seconds: the median of the slices, so
// that one during which the machine was busy elsewhere does not count.
func (s *sample) perOp() float64 { return spreadOf(s.slices).median }

// allocs is the number of Go's allocations per operation.
func (s *sample) allocs() float64 { return float64(s.mallocs) / float64(max(s.ops, 1)) }

// mean is the value per operation, of workloads that have one.
func (s *sample) mean() float64 { return s.value / float64(max(s.ops, 1)) }

// percentile is the latency that the fraction p of all operations stays
// within, in seconds.
func (s *sample) percentile(p float64) float64 {
	if len(s.latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.latencies))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Seconds()
}

// A round is what each subject measured in one round, by its name.
type round map[string]*sample

// result is a workload with what came out.
type result struct {
	*workload
	rounds []round
	took   time.Duration
}

// run measures the workload, by the wall clock or, where nothing waits, by the
// time that the processor has spent. The subjects take turns in slices, and every
// turn begins with another one, so that each comes as often in every place and a
// disturbance of the machine meets all of them alike. (In an order that is turned
// round each time, whoever is at an end follows upon itself, with its data still in
// the processor's cache.)
func run(w *workload, rounds int, dir string, cpu bool) (*result, error) {
	res := &result{workload: w}
	var open []*runner
	shut := func() error {
		var errs []error
		for _, r := range open {
			errs = append(errs, r.close())
		}
		open = nil
		return errors.Join(append(errs, os.RemoveAll(filepath.Join(dir, "stores")))...)
	}
	for i := range rounds {
		if open == nil {
			var err error
			if open, err = start(w, dir); err != nil {
				return nil, errors.Join(err, shut())
			}
		}
		one, err := runRound(w, open, i, cpu)
		if err != nil {
			return nil, errors.Join(err, shut())
		}
		res.rounds = append(res.rounds, one)
		if !w.keep {
			if err := shut(); err != nil {
				return nil, err
			}
		}
	}
	return res, shut()
}

// start opens the subjects. After an error it returns those that are open.
func start(w *workload, dir string) (open []*runner, err error) {
	for i, s := range w.subjects {
		own := filepath.Join(dir, "stores", fmt.Sprint(i))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return open, err
		}
		r, err := s.open(own)
		if err != nil {
			return open, fmt.Errorf("%s: %s: %w", w.name, s.name, err)
		}
		open = append(open, r)
	}
	return open, nil
}

func runRound(w *workload, open []*runner, number int, cpu bool) (round, error) {
	one := round{}
	for _, s := range w.subjects {
		one[s.name] = &sample{}
	}
	for turn := range max(w.slices, 1) {
		runtime.GC() // so that the garbage of the turn before is nobody's burden
		for i := range open {
			i = (i + number*max(w.slices, 1) + turn) % len(open)
			var s sample
			var err error
			// The label tells the subjects apart in a CPU profile.
			pprof.Do(context.Background(), pprof.Labels("subject", w.subjects[i].name), func(context.Context) {
				s, err = open[i].slice()
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", w.name, w.subjects[i].name, err)
			}
			if cpu && !w.waits {
				s.elapsed = s.cpu
			}
			one[w.subjects[i].name].add(s)
		}
	}
	return one, nil
}

// A spread is a value measured once per round.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return spread{}
	}
	m := v[len(v)/2]
	if len(v)%2 == 0 {
		m = (v[len(v)/2-1] + m) / 2
	}
	return spread{v[0], m, v[len(v)-1]}
}

// over is the spread of fn over the rounds.
func (r *result) over(fn func(round) float64) spread {
	var values []float64
	for _, one := range r.rounds {
		values = append(values, fn(one))
	}
	return spreadOf(values)
}
