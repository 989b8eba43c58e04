package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programEnv makes this test binary the program itself.
const programEnv = "OUTBOXHTTP_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		go func() { // a relay must not outlive a test that was killed
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.Env = append(os.Environ(), programEnv+"=1", "GORACE=atexit_sleep_ms=0") // the race detector would let every process sleep a second
	return cmd
}

type request struct{ key, kind, body string }

// endpoint is a server that answers with the codes, one after the other, then
// with 204; what it gets arrives on the channel.
func endpoint(t *testing.T, codes ...int) (url string, got chan request) {
	got = make(chan request, 100)
	answers := make(chan int, len(codes))
	for _, code := range codes {
		answers <- code
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header.Get("Idempotency-Key"), r.Header.Get("Event-Type"), string(body)}
		select {
		case code := <-answers:
			w.WriteHeader(code)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func next[T any](t *testing.T, got chan T) T {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was delivered")
		panic("unreachable")
	}
}

func appendIt(t *testing.T, path, id, body string) {
	t.Helper()
	out, err := program(t, "append", path, "order", id, "order.paid", body).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestEventsOfOtherProcessesArriveByHTTPInOrderAndAgainAfterAFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	url, got := endpoint(t, http.StatusInternalServerError)
	appendIt(t, path, "7", "one")
	relay := program(t, "relay", path, url)
	require.NoError(t, relay.Start())
	appendIt(t, path, "7", "two")
	require.Equal(t, request{"1", "order.paid", "one"}, next(t, got))
	require.Equal(t, request{"1", "order.paid", "one"}, next(t, got), "once more, with its key")
	require.Equal(t, request{"2", "order.paid", "two"}, next(t, got))

	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "it ends in good order")
	appendIt(t, path, "7", "three")
	again := program(t, "relay", path, url)
	require.NoError(t, again.Start())
	require.Equal(t, "three", next(t, got).body, "and nothing is delivered twice after that")
	require.NoError(t, again.Process.Signal(os.Interrupt))
	require.NoError(t, again.Wait())
}

func TestMessageThatTheEndpointRefusesIsNotSentAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	url, got := endpoint(t, http.StatusUnprocessableEntity)
	appendIt(t, path, "7", "bad")
	appendIt(t, path, "8", "good")
	relay := program(t, "relay", path, url)
	require.NoError(t, relay.Start())
	bodies := []string{next(t, got).body, next(t, got).body}
	require.ElementsMatch(t, []string{"bad", "good"}, bodies)
	require.NoError(t, relay.Process.Signal(os.Interrupt))
	require.NoError(t, relay.Wait())
	require.Empty(t, got)
}

func TestEventsArriveInTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	relay := program(t, "relay", path, "log")
	out, err := relay.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, relay.Start())
	lines := make(chan map[string]any, 10)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var line map[string]any
			if json.Unmarshal(scanner.Bytes(), &line) == nil {
				lines <- line
			}
		}
	}()
	for n := range 3 {
		appendIt(t, path, "7", strconv.Itoa(n))
		line := next(t, lines)
		require.Equal(t, strconv.Itoa(n), line["payload"])
		require.Equal(t, "order/7", line["subject"])
	}
}

func TestWrongUseIsTold(t *testing.T) {
	for _, args := range [][]string{{}, {"relay"}, {"relay", "path"}, {"deliver", filepath.Join(t.TempDir(), "s.db"), "x"}} {
		cmd := program(t, args...)
		_ = cmd.Run()
		require.Equal(t, 2, cmd.ProcessState.ExitCode())
	}
}
