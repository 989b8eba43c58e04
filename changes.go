package coopsqlite

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Op is what happened to a row.
type Op string

const (
	OpInsert Op = "insert"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
)

// Change is one row of coop_changes: what one statement did to one row of a
// table.
type Change struct {
	// Seq numbers the changes in the order in which they were committed,
	// without gaps.
	Seq int64 `json:"seq"`
	// Time is the wall clock when the row was written, to the microsecond. A
	// clock that was set back makes it go back too: order by Seq.
	Time  time.Time `json:"time"`
	Epoch int64     `json:"epoch"` // of the ownership that wrote
	// Tx is the same for all changes of a transaction: the Seq of the first.
	Tx    int64  `json:"tx"`
	Table string `json:"table"`
	Op    Op     `json:"op"`
	// Key is the primary key of the row, as it was before an update; of a table
	// without one, the rowid. It is nil only for a table whose columns hide all
	// names of the rowid.
	Key Row `json:"key"`
	// Old and New are the row before and after, with all columns that the table
	// had then. An inserted row has no Old, a deleted one no New.
	Old Row `json:"old,omitempty"`
	New Row `json:"new,omitempty"`
	// Actor is the metadata with that name; see [WithMetadata].
	Actor    string            `json:"actor,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Row is a row of a table, with its columns in the table's order.
type Row []Column

// Column is a column's name and value: nil, int64, float64, string or []byte,
// exactly as SQLite had stored it.
type Column struct {
	Name  string
	Value any
}

// Get returns the value of a column, and whether the row has it.
func (r Row) Get(name string) (any, bool) {
	for _, c := range r {
		if c.Name == name {
			return c.Value, true
		}
	}
	return nil, false
}

// MarshalJSON encodes the row as coop_changes holds it: an object of the
// columns in order. Integers have no decimal point or exponent, reals have one;
// an infinity is ±9e999; a blob is {"blob":"hexadecimal"}, and text that is not
// UTF-8 is {"text":"hexadecimal"}.
func (r Row) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	b := []byte{'{'}
	for i, c := range r {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(c.Name)
		if err != nil {
			return nil, err
		}
		b = append(append(b, name...), ':')
		if b, err = appendValue(b, c.Value); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendReal(b, v), nil
	case string:
		if !utf8.ValidString(v) {
			return appendBytes(b, "text", []byte(v)), nil
		}
		text, err := json.Marshal(v)
		return append(b, text...), err
	case []byte:
		return appendBytes(b, "blob", v), nil
	}
	return nil, fmt.Errorf("a value of type %T is none of SQLite's", value)
}

func appendReal(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "null"...) // what SQLite stores of it
	case math.IsInf(v, 0):
		if v < 0 {
			b = append(b, '-')
		}
		return append(b, "9e999"...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if !bytes.ContainsAny(b[start:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}

func appendBytes(b []byte, kind string, value []byte) []byte {
	b = append(b, `{"`+kind+`":"`...)
	b = hex.AppendEncode(b, value)
	return append(b, `"}`...)
}

// UnmarshalJSON reads what MarshalJSON and coop_changes write.
func (r *Row) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	open, err := d.Token()
	switch {
	case err != nil:
		return err
	case open == nil:
		*r = nil
		return nil
	case open != json.Delim('{'):
		return fmt.Errorf("coopsqlite: a row is a JSON object, not %v", open)
	}
	row := Row{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := decodeValue(d)
		if err != nil {
			return fmt.Errorf("coopsqlite: column %v: %w", name, err)
		}
		row = append(row, Column{name.(string), value})
	}
	*r = row
	return nil
}

func decodeValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case nil, string:
		return v, nil
	case json.Number:
		return decodeNumber(v.String())
	case json.Delim:
		if v == '{' {
			return decodeBytes(d)
		}
	}
	return nil, fmt.Errorf("unexpected %v", token)
}

func decodeNumber(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		return strconv.ParseInt(text, 10, 64)
	}
	v, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrRange) && math.IsInf(v, 0) {
		err = nil // that is how an infinity is written
	}
	return v, err
}

// decodeBytes reads the rest of {"blob":"…"} or {"text":"…"}.
func decodeBytes(d *json.Decoder) (any, error) {
	var tokens [3]json.Token // the kind, the digits, the closing brace
	for i := range tokens {
		var err error
		if tokens[i], err = d.Token(); err != nil {
			return nil, err
		}
	}
	digits, ok := tokens[1].(string)
	if !ok || tokens[2] != json.Delim('}') {
		return nil, fmt.Errorf("unexpected %v", tokens)
	}
	value, err := hex.DecodeString(digits)
	switch {
	case err != nil:
		return nil, err
	case tokens[0] == "blob":
		return value, nil
	case tokens[0] == "text":
		return string(value), nil
	}
	return nil, fmt.Errorf("unexpected %v", tokens[0])
}

// decodeMetadata reads the metadata of a change.
func decodeMetadata(text string) (map[string]string, error) {
	var row Row
	if err := row.UnmarshalJSON([]byte(text)); err != nil {
		return nil, err
	}
	metadata := make(map[string]string, len(row))
	for _, c := range row {
		metadata[c.Name], _ = c.Value.(string)
	}
	return metadata, nil
}

// changeOf makes a Change of a row of coop_changes; see readChanges.
func changeOf(values []any) (Change, error) {
	c := Change{
		Seq:   number(values[0]),
		Time:  time.UnixMicro(number(values[1])).UTC(),
		Epoch: number(values[2]),
		Tx:    number(values[3]),
		Table: text(values[4]),
		Op:    Op(text(values[5])),
		Actor: text(values[9]),
	}
	for i, row := range []*Row{&c.Key, &c.Old, &c.New} {
		if encoded, ok := values[6+i].(string); ok {
			if err := row.UnmarshalJSON([]byte(encoded)); err != nil {
				return c, fmt.Errorf("coopsqlite: change %d cannot be read: %w", c.Seq, err)
			}
		}
	}
	if encoded, ok := values[10].(string); ok {
		var err error
		if c.Metadata, err = decodeMetadata(encoded); err != nil {
			return c, fmt.Errorf("coopsqlite: change %d cannot be read: %w", c.Seq, err)
		}
	}
	return c, nil
}
