package coopsqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// roles are what other processes do that run more than the statements they are
// sent.
var roles = map[string]func(dsn string){
	roleHammer:  playHammer,
	roleWriter:  playWriter,
	roleSession: playSession,
	roleVirtual: playVirtual,
	roleBackup:  playBackup,
	roleBuilder: playBuilder,
}

// roleSession is an owner that runs what it is sent on one connection, as it
// comes: transactions may span several texts.
const roleSession = "session"

func playSession(dsn string) {
	answers := json.NewEncoder(os.Stdout)
	db, err := sql.Open("coopsqlite", dsn)
	answers.Encode(replyTo(err, nil))
	if err != nil {
		return
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		var statement string
		if err = json.Unmarshal(lines.Bytes(), &statement); err == nil {
			_, failed := conn.ExecContext(context.Background(), statement)
			answers.Encode(replyTo(failed, nil))
		}
	}
}

// roleHammer tries to write with plain mattn in a tight loop.
const roleHammer = "hammer"

// blow is what a hammer is told: a statement, which is tried until stdin ends.
// With UpTo, the statement has a %d, which counts up to there, one on with each
// try that the fence refuses.
type blow struct {
	Statement string
	UpTo      int
}

// blows is a hammer's account.
type blows struct {
	Refused int      // by the fence
	Landed  []string // statements that were not
	Odd     []string // errors that are none of those expected
}

func playHammer(dsn string) {
	stdin := bufio.NewReader(os.Stdin)
	var order blow
	line, _ := stdin.ReadBytes('\n')
	if err := json.Unmarshal(line, &order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	db, err := sql.Open("sqlite3", dsn)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, stdin)
		close(over)
	}()
	fmt.Println("ready")
	var account blows
	for i := 0; order.UpTo == 0 || i < order.UpTo; {
		select {
		case <-over:
			json.NewEncoder(os.Stdout).Encode(account)
			return
		default:
		}
		statement := order.Statement
		if order.UpTo > 0 {
			statement = fmt.Sprintf(statement, i)
		}
		_, err := db.Exec(statement)
		switch {
		case err == nil:
			account.Landed = append(account.Landed, statement)
			i++
		case err.Error() == noPermit:
			account.Refused++
			i++
			if order.UpTo > 0 {
				fmt.Println("refused")
			}
		case strings.HasPrefix(err.Error(), "no such table"), strings.Contains(err.Error(), "locked"):
		default:
			account.Odd = append(account.Odd, statement+": "+err.Error())
			i++
		}
	}
	json.NewEncoder(os.Stdout).Encode(account)
}

// striker is a hammer at work.
type striker struct {
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// hammer starts to strike.
func hammer(t *testing.T, dsn string, order blow) *striker {
	t.Helper()
	cmd := roleCommand(roleHammer, dsn)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	require.NoError(t, json.NewEncoder(stdin).Encode(order))
	h := &striker{t, stdin, bufio.NewScanner(stdout)}
	h.await("ready")
	return h
}

// await waits until the hammer says so.
func (h *striker) await(what string) {
	h.t.Helper()
	require.True(h.t, h.lines.Scan(), "the hammer broke")
	require.Equal(h.t, what, h.lines.Text())
}

// account makes an end and returns what became of the blows.
func (h *striker) account() (b blows) {
	h.t.Helper()
	require.NoError(h.t, h.stdin.Close())
	require.True(h.t, h.lines.Scan(), "the hammer broke")
	require.NoError(h.t, json.Unmarshal(h.lines.Bytes(), &b), h.lines.Text())
	return b
}
