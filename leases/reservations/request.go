package reservations

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coopsqlite/coopsqlite/leases/outbox"
)

const (
	// MaxQuantity bounds every quantity: of a line, of a SKU's lines together,
	// of SetStock and of Restock.
	MaxQuantity = 1 << 31
	// MaxLines bounds the lines of a request, so that its transaction is short.
	MaxLines = 1000
	// MaxHold bounds a hold.
	MaxHold = 366 * 24 * time.Hour

	maxName = 255 // bytes of scopes, keys and SKUs
	// maxAvailable leaves room above it for every hold that may still go back.
	maxAvailable = 1 << 62
)

// A Line asks for a quantity of one SKU.
type Line struct {
	SKU      string // 1 to 255 bytes of UTF-8, compared bytewise
	Quantity int64  // 1 to MaxQuantity
}

// A Request is what is to be reserved, all of it or nothing.
type Request struct {
	// Scope keeps the keys of different tenants or operations apart. It may be
	// empty. At most 255 bytes.
	Scope string
	// Key is chosen by the caller, once for everything that is to happen once:
	// 1 to 255 bytes. Repeating a request with its key is always safe.
	Key string
	// Lines of the same SKU are added up; their order does not matter.
	Lines []Line
	// Payload is kept with the reservation. It is part of what makes a request
	// the same, byte by byte.
	Payload []byte
	// Hold makes the reservation provisional for that long; see Confirm.
	Hold time.Duration
	// Event, if any, is appended to the outbox in the same transaction when the
	// request is accepted, and only then. It is not part of what makes a
	// request the same.
	Event *outbox.Event
}

// An order is a request in the form in which it is compared and carried out.
type order struct {
	Request
	fingerprint []byte
}

func (q Request) order() (order, error) {
	if err := checkName("Scope", q.Scope, 0); err != nil {
		return order{}, err
	}
	if err := checkName("Key", q.Key, 1); err != nil {
		return order{}, err
	}
	if q.Hold < 0 || q.Hold > MaxHold {
		return order{}, fmt.Errorf("%w: Hold is %v, want 0 to %v", ErrInvalidRequest, q.Hold, MaxHold)
	}
	lines, err := sum(q.Lines)
	if err != nil {
		return order{}, err
	}
	q.Lines, q.Payload = lines, orNil(q.Payload)
	return order{Request: q, fingerprint: fingerprint(q)}, nil
}

// sum adds up the lines of each SKU and sorts them, bytewise: the order in
// which every transaction locks stock.
func sum(lines []Line) ([]Line, error) {
	if len(lines) == 0 || len(lines) > MaxLines {
		return nil, fmt.Errorf("%w: %d lines, want 1 to %d", ErrInvalidRequest, len(lines), MaxLines)
	}
	total := make(map[string]int64, len(lines))
	for _, l := range lines {
		if err := checkName("SKU", l.SKU, 1); err != nil {
			return nil, err
		}
		if err := checkQuantity(l.SKU, l.Quantity, 1); err != nil {
			return nil, err
		}
		total[l.SKU] += l.Quantity // no overflow: both are at most MaxQuantity
		if err := checkQuantity(l.SKU, total[l.SKU], 1); err != nil {
			return nil, err
		}
	}
	summed := make([]Line, 0, len(total))
	for sku, quantity := range total {
		summed = append(summed, Line{SKU: sku, Quantity: quantity})
	}
	slices.SortFunc(summed, func(a, b Line) int { return strings.Compare(a.SKU, b.SKU) })
	return summed, nil
}

// fingerprintVersion is the first byte of every fingerprint. Whoever changes
// what goes into it raises the version and goes on comparing the old way with
// reservations that have the old one.
const fingerprintVersion = 1

// fingerprint tells requests apart. Every part is preceded by its length, so
// that no two requests run together into the same bytes.
func fingerprint(q Request) []byte {
	h := sha256.New()
	number := func(n int) { binary.Write(h, binary.BigEndian, uint64(n)) } // a hash takes every write
	number(len(q.Lines))
	for _, l := range q.Lines {
		number(len(l.SKU))
		h.Write([]byte(l.SKU))
		number(int(l.Quantity))
	}
	number(len(q.Payload))
	h.Write(q.Payload)
	number(int(q.Hold))
	return h.Sum([]byte{fingerprintVersion})
}

// orNil makes an empty payload nil: they are the same.
func orNil(payload []byte) []byte {
	if len(payload) == 0 {
		return nil
	}
	return payload
}

func checkName(what, name string, least int) error {
	switch {
	case len(name) < least:
		return fmt.Errorf("%w: %s is empty", ErrInvalidRequest, what)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalidRequest, what, maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalidRequest, what)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: %s contains NUL", ErrInvalidRequest, what)
	}
	return nil
}

func checkQuantity(sku string, quantity, least int64) error {
	if quantity < least || quantity > MaxQuantity {
		return fmt.Errorf("%w: quantity %d of %q, want %d to %d", ErrInvalidRequest, quantity, sku, least, int64(MaxQuantity))
	}
	return nil
}
