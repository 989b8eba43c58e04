package outboxtest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/coopsqlite/coopsqlite/leases/leasetest"
	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

// relayEnv carries the configuration of a relay's process.
const relayEnv = "OUTBOXTEST_RELAY"

type relayConfig struct {
	Store leasetest.Store
	URL   string // of the consumer
}

// Main is for TestMain of a test that kills relays: in a process that the test
// started it is a relay and never returns, in any other it does nothing.
func Main() {
	config := os.Getenv(relayEnv)
	if config == "" {
		return
	}
	go endWithParent()
	if err := relayForEver(config); err != nil {
		fmt.Fprintln(os.Stderr, "outboxtest relay:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// endWithParent ends this process when the test that started it is gone, however
// that ended: nobody else holds the other end of its standard input.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func relayForEver(config string) error {
	var c relayConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	db, err := sql.Open(c.Store.Driver, c.Store.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	box, err := outbox.New(db, &outbox.Options{Dialect: c.Store.Dialect})
	if err != nil {
		return err
	}
	relay, err := box.Relay(&outbox.RelayOptions{
		Batch: 4, Workers: 3, MaxAttempts: 1 << 20,
		Lease: 200 * time.Millisecond, Timeout: time.Second, Poll: 5 * time.Millisecond,
		Backoff: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return relay.Run(context.Background(), func(ctx context.Context, d outbox.Delivery) error {
		return post(ctx, c.URL, d)
	})
}

// post delivers by HTTP. Any answer but success is a failure.
func post(ctx context.Context, url string, d outbox.Delivery) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Payload))
	if err != nil {
		return err
	}
	request.Header.Set("Event-Id", strconv.FormatInt(d.ID, 10))
	request.Header.Set("Aggregate", d.AggregateID)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("consumer answered %s", response.Status)
	}
	return nil
}

// startRelay starts a relay as a process of its own, and returns when it works.
func startRelay(store leasetest.Store, url string) (*exec.Cmd, error) {
	config, err := json.Marshal(relayConfig{store, url})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), relayEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // see endWithParent
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it says that it is ready
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("relay did not start: %w, %w", err, cmd.Wait())
	}
	return cmd, nil
}

// kill kills the relay, and reports whether it was still there.
func kill(relay *exec.Cmd) bool {
	_ = relay.Process.Kill()
	_ = relay.Wait()
	return relay.ProcessState.ExitCode() == -1 // ended by a signal
}
