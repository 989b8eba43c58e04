//go:build !windows

package shim

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Token is the cancellation flag of the statements that run with one context.
// It lies in C memory, where the progress and busy handlers look at it.
type Token struct{ flag *C.int32_t }

// NewToken returns a token that is not cancelled.
func NewToken() *Token {
	return &Token{(*C.int32_t)(C.calloc(1, C.sizeof_int32_t))}
}

// Cancel ends the statement that runs with the token, if one does.
func (t *Token) Cancel() { storeInt32(t.flag, 1) }

// Reset makes the token fit for another context.
func (t *Token) Reset() { storeInt32(t.flag, 0) }

// Free releases the token; no statement may run with it any more.
func (t *Token) Free() { C.free(unsafe.Pointer(t.flag)) }

// Watch makes t the token of what runs next; nil lets nothing cancel it. What
// its caller has waited already shortens the wait for SQLite's locks.
func (c *Conn) Watch(t *Token, waited time.Duration) {
	c.p.busy_since = 0
	c.p.busy_spent = C.int64_t(waited / time.Millisecond)
	c.p.cancel = nil
	if t != nil {
		c.p.cancel = t.flag
	}
}

// Unwatch ends the effect of [Conn.Watch]: nothing is running.
func (c *Conn) Unwatch() { c.p.cancel = nil }

func storeInt32(p *C.int32_t, v C.int32_t) { atomic.StoreInt32((*int32)(p), int32(v)) }
func storeInt64(p *C.int64_t, v C.int64_t) { atomic.StoreInt64((*int64)(p), int64(v)) }
