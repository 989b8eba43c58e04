// Command bench runs SQLite's Go drivers side by side and holds coopsqlite to
// its budgets.
//
//	go run .                  the budgets and short forms of the suites, some minutes
//	go run . -all             everything at full size
//	go run . -run reads       the workloads whose family or name contains "reads"
//	go run . -docs ../docs    the same, and write performance.md with its charts
//
// Every number is a ratio of two runs within the same round, in which the
// contenders take turns; the table has the median over the rounds and the range.
// The exit code is 1 if a budget is missed, 2 if something cannot be measured.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

type options struct {
	all     bool
	run     string
	rounds  int
	dir     string
	docs    string
	profile string
	cpu     bool
}

func main() {
	if handoverChild() {
		return
	}
	var o options
	flag.BoolVar(&o.all, "all", false, "the long form: every workload at full size")
	flag.StringVar(&o.run, "run", "", "only workloads whose family or name contains `text`")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each workload")
	flag.StringVar(&o.dir, "dir", "", "`directory` for the stores; by default a temporary one")
	flag.StringVar(&o.docs, "docs", "", "write performance.md and its charts into `directory`")
	flag.BoolVar(&o.cpu, "cpu", false, "go by the processor's time where nothing waits: for a machine that others use too")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the run to `file`")
	flag.Parse()
	missed, err := bench(&o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case missed > 0:
		os.Exit(1)
	}
}

// bench runs what was asked for and returns how many budgets were missed.
func bench(o *options) (missed int, err error) {
	dir, err := os.MkdirTemp(o.dir, "coopsqlite-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	stop := removeOnSignal(dir)
	defer stop()
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return 0, err
		}
		defer pprof.StopCPUProfile()
	}
	m, err := thisMachine(dir)
	if err != nil {
		return 0, err
	}
	fmt.Println(m)
	var results []*result
	for _, w := range workloads(o.all) {
		if o.run != "" && !strings.Contains(w.family+"/"+w.name, o.run) {
			continue
		}
		res := &result{workload: w}
		if w.skip == "" {
			begin := time.Now()
			if res, err = run(w, o.rounds, dir, o.cpu); err != nil {
				return 0, err
			}
			res.took = time.Since(begin)
		}
		printResult(os.Stdout, res)
		results = append(results, res)
	}
	missed = printBudgets(os.Stdout, results)
	if o.docs != "" {
		return missed, writeDocs(o.docs, m, o, results)
	}
	return missed, nil
}

// workloads are all of them, in the order of the report.
func workloads(full bool) []*workload {
	var all []*workload
	for _, family := range [][]*workload{
		statementWorkloads(),
		bulkWorkloads(),
		readWorkloads(),
		writerWorkloads(),
		commitWorkloads(),
		trackingWorkloads(),
		schemaWorkloads(),
		handoverWorkloads(),
		scaleWorkloads(),
		leaseWorkloads(),
		leasePostgresWorkloads(),
		suiteWorkloads(full),
	} {
		all = append(all, family...)
	}
	return all
}

// removeOnSignal sees to it that an interrupted run leaves no stores behind.
func removeOnSignal(dir string) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; ok {
			os.RemoveAll(dir)
			os.Exit(130)
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}
