package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// demoRole is the variable that makes this program one of the demo's other
// processes: it opens the store named by its argument, and runs the statements
// that come in on its standard input, one a line.
const demoRole = "COOPSQLITE_DEMO_ROLE"

const (
	roleOwner    = "owner"
	roleOutsider = "outsider"
	roleForger   = "forger" // defines coop_write_permit
	roleLiar     = "liar"   // and coop_context as well
)

// What SQLite says to those who lack the private functions.
const (
	noPermit  = "no such function: coop_write_permit"
	noContext = "no such function: coop_context"
)

// process is another process. Its answers are JSON strings, empty for success.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// start starts a process; the error is what its open was told.
func (d *demo) start(ctx context.Context, role string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, d.path)
	cmd.Env = append(os.Environ(), demoRole+"="+role)
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.answer(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *process) ask(statement string) error {
	if _, err := io.WriteString(p.in, statement+"\n"); err != nil {
		return err
	}
	return p.answer()
}

func (p *process) answer() error {
	if !p.lines.Scan() {
		return errors.Join(errors.New("the other process has ended"), p.lines.Err())
	}
	var text string
	if err := json.Unmarshal(p.lines.Bytes(), &text); err != nil || text == "" {
		return err
	}
	return errors.New(text)
}

func (p *process) stop() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// playDemoRole is the other process.
func playDemoRole(role string) int {
	out := json.NewEncoder(os.Stdout)
	answer := func(err error) {
		text := ""
		if err != nil {
			text = err.Error()
		}
		_ = out.Encode(text)
	}
	db, err := sql.Open(demoDriver(role), os.Args[1])
	if err == nil {
		defer db.Close()
		err = db.Ping()
	}
	answer(err)
	if err != nil {
		return exitFinding
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		_, err := db.Exec(lines.Text())
		answer(err)
	}
	return exitFine
}

// demoDriver is the driver that a role uses, which forgers make themselves.
func demoDriver(role string) string {
	switch role {
	case roleOwner:
		return "coopsqlite"
	case roleOutsider:
		return "sqlite3"
	}
	sql.Register(role, &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		err := c.RegisterFunc("coop_write_permit", func() int { return 1 }, false)
		if role == roleLiar {
			// The number is in the file, for anybody to read.
			err = errors.Join(err, c.RegisterFunc("coop_context", func(string) (int64, error) { return readFence(os.Args[1]) }, false))
		}
		return err
	}})
	return role
}

func readFence(path string) (fence int64, err error) {
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRow("SELECT fence FROM coop_owner").Scan(&fence)
	return fence, err
}

// tool is a program that writes to SQLite files and knows nothing of owners.
type tool struct {
	who  string
	name string
	args []string
}

// tools are those that are installed.
func tools(path, statement string) (found []tool) {
	for _, t := range []tool{
		{"the sqlite3 shell", "sqlite3", []string{path, statement}},
		{"a Python script", "python3", []string{"-c", "import sqlite3, sys\nsqlite3.connect(sys.argv[1], isolation_level=None).execute(sys.argv[2])", path, statement}},
	} {
		if _, err := exec.LookPath(t.name); err == nil {
			found = append(found, t)
		}
	}
	return found
}

// run returns what the tool complained of, from the refusal on: the words
// before it are the tool's own.
func (t tool) run(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, t.name, t.args...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if at := strings.Index(text, noPermit); at >= 0 {
		text = noPermit
	}
	return errors.New(text)
}
