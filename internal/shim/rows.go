//go:build !windows

package shim

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"database/sql/driver"
	"encoding/binary"
	"math"
	"unsafe"
)

// Query runs a query of our own and returns all values, row after row: int64,
// float64, string, []byte or nil. It makes one crossing into C, however many
// rows there are.
func (c *Conn) Query(sql string) ([]any, error) {
	rc := C.coop_pack(c.p, (*C.char)(unsafe.Pointer(unsafe.StringData(sql))), C.int(len(sql)))
	if rc != C.SQLITE_OK {
		return nil, c.lastError(rc)
	}
	packed := unsafe.Slice((*byte)(unsafe.Pointer(c.p.packed)), int(c.p.packed_len))
	text := string(packed) // one copy; the strings below share it
	values := make([]any, 0, int(c.p.packed_values))
	for at := 0; at < len(packed); {
		kind := packed[at]
		at++
		switch kind {
		case C.SQLITE_INTEGER:
			values = append(values, int64(binary.NativeEndian.Uint64(packed[at:])))
			at += 8
		case C.SQLITE_FLOAT:
			values = append(values, math.Float64frombits(binary.NativeEndian.Uint64(packed[at:])))
			at += 8
		case C.SQLITE_TEXT:
			n := int(binary.NativeEndian.Uint32(packed[at:]))
			at += 4
			values = append(values, text[at:at+n])
			at += n
		case C.SQLITE_BLOB:
			n := int(binary.NativeEndian.Uint32(packed[at:]))
			at += 4
			values = append(values, []byte(text[at:at+n]))
			at += n
		default:
			values = append(values, nil)
		}
	}
	return values, nil
}

// Texts runs a query of our own whose columns are all text, and returns the
// values, row after row; NULL is the empty string. It spares [Conn.Query]'s
// allocation for each.
func (c *Conn) Texts(sql string) ([]string, error) {
	rc := C.coop_pack(c.p, (*C.char)(unsafe.Pointer(unsafe.StringData(sql))), C.int(len(sql)))
	if rc != C.SQLITE_OK {
		return nil, c.lastError(rc)
	}
	packed := unsafe.Slice((*byte)(unsafe.Pointer(c.p.packed)), int(c.p.packed_len))
	text := string(packed)
	values := make([]string, 0, int(c.p.packed_values))
	for at := 0; at < len(packed); {
		n := 0
		if packed[at] == C.SQLITE_TEXT {
			n = int(binary.NativeEndian.Uint32(packed[at+1:]))
			at += 4
		}
		at++
		values = append(values, text[at:at+n])
		at += n
	}
	return values, nil
}

func nextInto(rows driver.Rows, dest []any) error {
	values := make([]driver.Value, len(dest))
	if err := rows.Next(values); err != nil {
		return err
	}
	for i, v := range values {
		dest[i] = v
	}
	return nil
}
