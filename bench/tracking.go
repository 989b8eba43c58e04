package main

import (
	"errors"
	"os"
)

// Change tracking, compared with the same store without it.

func trackingWorkloads() []*workload {
	skip := ""
	if err := tracks(); err != nil {
		skip = err.Error()
	}
	mk := func(name, what string, prepare func(pools) (func() (sample, error), error), limit float64) *workload {
		return &workload{family: "change tracking", name: name, what: what, unit: "row", baseline: coop.name, slices: 24,
			subjects: each(itemsSchema, prepare, coopChanges, coop),
			budgets:  []budget{speed("against the fenced write", coopChanges.name, coop.name, limit)},
			skip:     skip,
		}
	}
	return []*workload{
		mk("changes tracked, autocommit", "One INSERT per transaction with _coop_changes=*.", autocommit, 0.6),
		mk("changes tracked, in one transaction", "4,000 INSERTs through one prepared statement with _coop_changes=*.", inTx(prepared, true), 0.3),
	}
}

// tracks makes sure that changes are recorded at all, so that nothing is
// measured that does not happen.
func tracks() error {
	dir, err := os.MkdirTemp("", "coopsqlite-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := coopChanges.open(dir)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := p.write.Exec(itemsSchema); err != nil {
		return err
	}
	if _, err := p.write.Exec(insertItem, itemName, 1); err != nil {
		return err
	}
	var n int
	if err := p.read.QueryRow(`SELECT count(*) FROM coop_changes`).Scan(&n); err != nil || n == 0 {
		return errors.New("this build of coopsqlite records no changes")
	}
	return nil
}
