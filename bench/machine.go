package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A machine is where the numbers come from, for the report.
type machine struct {
	CPU      string
	CPUs     int
	System   string
	Disk     string // what fsync costs where the stores lie
	Go       string
	Versions []string // of the drivers, with SQLite's
}

func thisMachine(dir string) (*machine, error) {
	m := &machine{CPU: "unknown CPU", CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(release))
	}
	sync, err := fsync(dir)
	if err != nil {
		return nil, err
	}
	m.Disk = fmt.Sprintf("an fsync of 4 KB takes %s", seconds(sync.Seconds()))
	build, _ := debug.ReadBuildInfo()
	for _, d := range []struct{ driver, module string }{
		{mattn.driver, "github.com/mattn/go-sqlite3"},
		{modernc.driver, "modernc.org/sqlite"},
		{ncruces.driver, "github.com/ncruces/go-sqlite3"},
		{"", "zombiezen.com/go/sqlite"},
	} {
		text := d.module
		if build != nil {
			for _, dep := range build.Deps {
				if dep.Path == d.module {
					text += " " + dep.Version
				}
			}
		}
		sqlite, err := sqliteVersion(d.driver)
		if err != nil {
			return nil, err
		}
		m.Versions = append(m.Versions, text+" (SQLite "+sqlite+")")
	}
	return m, nil
}

func (m *machine) String() string {
	return fmt.Sprintf("%s, %d CPUs, %s; %s; %s\n%s", m.CPU, m.CPUs, m.System, m.Disk, m.Go, strings.Join(m.Versions, "\n"))
}

func sqliteVersion(driver string) (version string, err error) {
	const query = `SELECT sqlite_version()`
	if driver == "" {
		return zombiezenVersion(query)
	}
	db, err := sql.Open(driver, ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	return version, db.QueryRow(query).Scan(&version)
}

// fsync is the time of a small durable write, the median of some.
func fsync(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var values []float64
	block := make([]byte, 4096)
	for range 21 {
		begin := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		values = append(values, time.Since(begin).Seconds())
	}
	return time.Duration(spreadOf(values).median * float64(time.Second)), nil
}
