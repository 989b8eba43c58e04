//go:build !linux

package sqltx

import "time"

// BootTime is the time since the machine booted, suspended time included; ok
// is false where the kernel does not tell.
func BootTime() (sinceBoot time.Duration, ok bool) { return 0, false }

func bootID() string { return "" }
