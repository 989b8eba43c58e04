package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fixed is a workload whose subjects take what they are told, per round.
func fixed(times map[string][]time.Duration, b ...budget) *workload {
	w := &workload{family: "statements", name: "fixed", unit: "row", baseline: "b", budgets: b}
	for _, name := range []string{"a", "b"} {
		w.subjects = append(w.subjects, subject{name, func(string) (*runner, error) {
			return &runner{
				slice: func() (sample, error) {
					next := times[name][0]
					times[name] = times[name][1:]
					return sample{ops: 10, elapsed: next}, nil
				},
				close: func() error { return nil },
			}, nil
		}})
	}
	return w
}

func measured(t *testing.T, w *workload, rounds int) *result {
	r, err := run(w, rounds, t.TempDir(), false)
	require.NoError(t, err)
	return r
}

func TestRatiosAreFormedWithinARoundAndJudgedByTheMedian(t *testing.T) {
	// The machine is ten times slower in the third round; the ratio is 2 in all
	// but one.
	r := measured(t, fixed(map[string][]time.Duration{
		"a": {100, 100, 1000, 300, 100},
		"b": {200, 200, 2000, 100, 200},
	}, speed("", "a", "b", 2)), 5)
	require.Equal(t, []verdict{{"fixed", "2× (0.333×–2×)", "≥ 2×", "met"}}, r.verdicts())
	require.Zero(t, printBudgets(io.Discard, []*result{r}))
}

func TestMissedBudgetIsCounted(t *testing.T) {
	r := measured(t, fixed(map[string][]time.Duration{"a": {100}, "b": {199}}, speed("", "a", "b", 2), cost("", "a", "b", 0.6)), 1)
	require.Equal(t, 1, printBudgets(io.Discard, []*result{r}))
}

func TestSkippedWorkloadIsNeitherMetNorMissed(t *testing.T) {
	w := fixed(nil, speed("", "a", "b", 2))
	w.skip = "not here"
	var out strings.Builder
	require.Zero(t, printBudgets(&out, []*result{{workload: w}}))
	require.Contains(t, out.String(), "not here")
}

func TestOneDisturbedSliceDoesNotCount(t *testing.T) {
	w := fixed(map[string][]time.Duration{"a": {100, 9000, 100}, "b": {100, 100, 100}}, speed("", "a", "b", 1))
	w.slices = 3
	r := measured(t, w, 1)
	require.InDelta(t, 1, r.over(r.budgets[0].value).median, 0.001)
}

func TestEveryTurnBeginsWithAnotherSubject(t *testing.T) {
	var order strings.Builder
	w := &workload{name: "order", slices: 2}
	for _, name := range []string{"a", "b", "c"} {
		w.subjects = append(w.subjects, subject{name, func(string) (*runner, error) {
			return &runner{
				slice: func() (sample, error) { order.WriteString(name); return sample{}, nil },
				close: func() error { return nil },
			}, nil
		}})
	}
	measured(t, w, 2)
	require.Equal(t, "abcbcacababc", order.String())
}

func TestPercentileIsOfAllOperations(t *testing.T) {
	var s sample
	for i := range 1000 {
		s.latencies = append(s.latencies, time.Duration(i+1)*time.Second)
	}
	require.Equal(t, 1000.0, s.percentile(0.999))
	require.Equal(t, 501.0, s.percentile(0.5))
}

func TestFailuresAreCountedByKind(t *testing.T) {
	var s sample
	s.count(nil)
	s.count(errors.New("database is locked"))
	s.count(errors.New("no such table: t"))
	require.Equal(t, sample{ops: 1, busy: 1, failed: 1}, s)
}

func TestFailedRunLeavesNoStores(t *testing.T) {
	dir := t.TempDir()
	w := fixed(map[string][]time.Duration{"a": {1}, "b": {1}})
	w.subjects[1].open = func(string) (*runner, error) {
		return &runner{
			slice: func() (sample, error) { return sample{}, errors.New("no") },
			close: func() error { return nil },
		}, nil
	}
	_, err := run(w, 1, dir, false)
	require.ErrorContains(t, err, "fixed: b: no")
	require.NoDirExists(t, filepath.Join(dir, "stores"))
}

func TestPageIsWrittenWithItsCharts(t *testing.T) {
	r := measured(t, fixed(map[string][]time.Duration{"a": {100}, "b": {200}}, speed("", "a", "b", 1)), 1)
	dir := t.TempDir()
	require.NoError(t, writeDocs(dir, &machine{CPU: "a CPU"}, &options{rounds: 1}, []*result{r}))
	page, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| fixed | ≥ 1× | 2× (2×–2×) | met |")
	require.Contains(t, string(page), "](charts/statements.svg)")
	chart, err := os.ReadFile(filepath.Join(dir, "charts", "statements.svg"))
	require.NoError(t, err)
	require.Contains(t, string(chart), "<svg")
}
