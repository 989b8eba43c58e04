package harness

import "testing"

// NeedsDriver skips what cannot pass before the driver is there.
func NeedsDriver(t testing.TB) {
	t.Helper()
	if Driver == "sqlite3" {
		t.Skip("needs the driver")
	}
}
