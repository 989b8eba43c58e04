package sqltx

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME: like the monotonic clock, but it goes on
// while the machine is suspended. clock_gettime(2).
const clockBoottime = 7

// BootTime is the time since the machine booted, suspended time included; ok
// is false where the kernel does not tell.
func BootTime() (sinceBoot time.Duration, ok bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// bootID tells one boot of the machine from every other; empty where the
// kernel does not say. random(4).
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
