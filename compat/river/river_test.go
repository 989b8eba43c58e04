// Package river_test: the job queue River, on SQLite through the driver
// coopsqlite, with the pool as database/sql makes it and several workers.
package river_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/coopsqlite/coopsqlite/compat/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// payArgs asks for one payment.
type payArgs struct {
	Account int `json:"account"`
	Amount  int `json:"amount"`
}

func (payArgs) Kind() string { return "pay" }

// payWorker writes the payment and completes the job in one transaction.
type payWorker struct {
	river.WorkerDefaults[payArgs]
	db *sql.DB
}

func (w *payWorker) Work(ctx context.Context, job *river.Job[payArgs]) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO payments (account, amount) VALUES (?, ?)", job.Args.Account, job.Args.Amount); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[*riversqlite.Driver](ctx, tx, job); err != nil {
		return err
	}
	return tx.Commit()
}

// complaints is a log handler that keeps what River logs as a warning or worse.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

func (c *complaints) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, string(line))
	return len(line), nil
}

func (c *complaints) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "")
}

func open(t *testing.T) (*sql.DB, string) {
	t.Helper()
	path := harness.Path(t)
	db := harness.Open(t, harness.DSN(path))
	migrator, err := rivermigrate.New(riversqlite.New(db), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	harness.Exec(t, db, "CREATE TABLE orders (id INTEGER PRIMARY KEY, account INT)",
		"CREATE TABLE payments (id INTEGER PRIMARY KEY, account INT, amount INT)")
	return db, path
}

// River's documentation advises a pool of one connection on SQLite; here it may
// also be what database/sql makes it.
func TestJobsInsertedInTransactionsAreWorkedOnceBySeveralWorkers(t *testing.T) {
	for _, connections := range []int{0, 1} {
		t.Run(fmt.Sprint("at most ", connections, " connections"), func(t *testing.T) {
			db, path := open(t)
			db.SetMaxOpenConns(connections) // zero: no limit
			workJobs(t, db)
			harness.Guarded(t, db, path)
		})
	}
}

func workJobs(t *testing.T, db *sql.DB) {
	t.Helper()
	var log complaints
	workers := river.NewWorkers()
	river.AddWorker(workers, &payWorker{db: db})
	client, err := river.NewClient(riversqlite.New(db), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 8}},
		Workers:           workers,
		Logger:            slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		FetchPollInterval: 100 * time.Millisecond,
		FetchCooldown:     10 * time.Millisecond,
	})
	require.NoError(t, err)
	events, cancelEvents := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed)
	defer cancelEvents()
	require.NoError(t, client.Start(t.Context()))

	const producers, each = 4, 25
	failed := make(chan error, producers)
	for account := range producers {
		go func() { failed <- order(t.Context(), db, client, account, each) }()
	}
	for range producers {
		require.NoError(t, <-failed)
	}
	timeout := time.After(2 * time.Minute)
	for range producers * each {
		select {
		case event := <-events:
			require.Equal(t, river.EventKindJobCompleted, event.Kind, "%+v", event.Job.Errors)
			require.Equal(t, 1, event.Job.Attempt, "%+v", event.Job.Errors)
		case <-timeout:
			t.Fatal("not every job was worked:\n" + log.all())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.NoError(t, client.Stop(ctx))

	var orders, payments, amount int
	require.NoError(t, db.QueryRow("SELECT (SELECT count(*) FROM orders), count(*), sum(amount) FROM payments").Scan(&orders, &payments, &amount))
	require.Equal(t, producers*each, orders, "orders whose transaction was rolled back left neither a row nor a job")
	require.Equal(t, producers*each, payments)
	require.Equal(t, producers*each*10, amount)
	require.NotContains(t, log.all(), "locked")
	require.NotContains(t, log.all(), "BUSY")
}

// order writes n orders, each with its job in the same transaction, and beside
// each one more of both that it rolls back.
func order(ctx context.Context, db *sql.DB, client *river.Client[*sql.Tx], account, n int) error {
	for i := range 2 * n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (account) VALUES (?)", account); err != nil {
			return fmt.Errorf("order: %w", err)
		}
		if _, err := client.InsertTx(ctx, tx, payArgs{Account: account, Amount: 10}, nil); err != nil {
			return fmt.Errorf("insert job: %w", err)
		}
		end := tx.Commit
		if i%2 == 1 {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	db, path := open(t)
	migrator, err := rivermigrate.New(riversqlite.New(db), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
	require.NoError(t, err)
	harness.Guarded(t, db, path)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	result, err := migrator.Validate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, result.OK, "%v", result.Messages)
	harness.Guarded(t, db, path)
}
