package flock

// setRangeLock is F_OFD_SETLK; see range_linux.go.
const setRangeLock = 90
