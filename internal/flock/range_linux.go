package flock

// setRangeLock is F_OFD_SETLK: the range lock belongs to the open file
// description, as flock's does, so closing another descriptor of the file in
// this process does not drop it.
const setRangeLock = 37
