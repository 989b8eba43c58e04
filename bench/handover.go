package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// One owner closes, the next one is waiting.

const (
	waitParams     = "&_coop_wait=30s"
	handoverEnv    = "COOPSQLITE_BENCH_HANDOVER" // the DSN to wait for: makes this program the waiting process
	handoverSettle = 40 * time.Millisecond       // until the other is surely waiting
	handoverTable  = `CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`
)

func handoverWorkloads() []*workload {
	mk := func(name, what string, next func(dsn string) (*successor, error)) *workload {
		return &workload{
			family: "ownership", name: name, what: what, unit: "handover", slices: 5, measures: duration,
			subjects: []subject{{coop.name, func(dir string) (*runner, error) {
				return &runner{
					slice: func() (sample, error) { return handOver(dir, next) },
					close: func() error { return nil },
				}, nil
			}}},
			budgets: []budget{{what: "after Close has returned", limit: 0.010, most: true, unit: duration,
				value: func(r round) float64 { return r[coop.name].mean() }}},
		}
	}
	return []*workload{
		mk("ownership handed over to another process", "From the return of Close to that of sql.Open in a process that waits, no transaction open.", otherProcess),
		mk("ownership handed over to another pool", "The same within one process.", otherPool),
	}
}

// A successor waits for the ownership and tells when it has it.
type successor struct {
	got func() (time.Time, error)
}

func handOver(dir string, next func(string) (*successor, error)) (sample, error) {
	dsn := "file:" + dir + "/store.db?" + coop.params
	db, err := sql.Open(coop.driver, dsn)
	if err != nil {
		return sample{}, err
	}
	if _, err := db.Exec(handoverTable); err != nil {
		return sample{}, errors.Join(err, db.Close())
	}
	s, err := next(dsn + waitParams)
	if err != nil {
		return sample{}, errors.Join(err, db.Close())
	}
	time.Sleep(handoverSettle)
	if err := db.Close(); err != nil {
		return sample{}, err
	}
	closed := time.Now()
	got, err := s.got()
	return sample{ops: 1, value: max(0, got.Sub(closed).Seconds())}, err
}

func otherPool(dsn string) (*successor, error) {
	type outcome struct {
		at  time.Time
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		db, err := sql.Open(coop.driver, dsn)
		at := time.Now()
		if err == nil {
			err = db.Close()
		}
		done <- outcome{at, err}
	}()
	return &successor{func() (time.Time, error) { o := <-done; return o.at, o.err }}, nil
}

// otherProcess starts this program once more. Both read the same wall clock.
func otherProcess(dsn string) (*successor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), handoverEnv+"="+dsn)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil { // it is about to open
		return nil, errors.Join(err, cmd.Wait())
	}
	return &successor{func() (time.Time, error) {
		line, err := lines.ReadString('\n')
		if err = errors.Join(err, cmd.Wait()); err != nil {
			return time.Time{}, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		return time.Unix(0, ns), err
	}}, nil
}

// handoverChild is the process that waits; it returns false in any other.
func handoverChild() bool {
	dsn := os.Getenv(handoverEnv)
	if dsn == "" {
		return false
	}
	fmt.Println("waiting")
	db, err := sql.Open(coop.driver, dsn)
	at := time.Now()
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(at.UnixNano())
	return true
}
