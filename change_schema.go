package coopsqlite

import (
	"slices"
	"strings"

	"github.com/coopsqlite/coopsqlite/internal/shim"
)

// shape is what the tracking triggers must know of a table.
type shape struct {
	columns []column // all, generated ones too, in order
	// rowid is a name of the rowid in this table: its INTEGER PRIMARY KEY, or
	// one that no column hides; empty where there is none.
	rowid string
	// primary are the columns of the primary key, in order.
	primary []column
	unique  []uniqueKey
}

// column is one column of a table.
type column struct {
	name      string
	primary   int64 // place in the primary key, from 1
	generated bool
	// fallback is what ON CONFLICT REPLACE puts in place of a NULL that the
	// column does not allow; an SQL expression, or empty.
	fallback string
}

// uniqueKey is one way in which two rows of a table can collide.
type uniqueKey struct {
	terms []term
	where string // of a partial index
}

// term is a column of a unique key, or an expression.
type term struct {
	column    column
	expr      string
	collation string
}

// identity are the columns that tell a row from the others of its table.
func (s *shape) identity() []column {
	switch {
	case len(s.primary) > 0:
		return s.primary
	case s.rowid != "":
		return []column{{name: s.rowid}}
	}
	return nil
}

// byRowid reports whether only the rowid tells a row from the others.
func (s *shape) byRowid() bool { return len(s.primary) == 0 && s.rowid != "" }

// Of the keys of one table so many are looked at, and in each so many terms:
// beyond lies SQLite's limit on arguments and on the depth of expressions.
const (
	maxUniqueKeys = 100
	maxKeyTerms   = 200
)

// readShapes reads the columns and unique keys of ordinary tables, in one pass
// each.
func readShapes(c *shim.Conn, tables []*table) (map[string]*shape, error) {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = "(" + quoteText(t.name) + ")"
	}
	these := "WITH t(name) AS (VALUES" + strings.Join(names, ",") + ")"
	columns, err := c.Query(these + ` SELECT t.name, x.name, x.pk, x.hidden, x."notnull", x.dflt_value FROM t, pragma_table_xinfo(t.name, 'main') x`)
	if err != nil {
		return nil, err
	}
	shapes := map[string]*shape{}
	for i := 0; i < len(columns); i += 6 {
		s := shapes[text(columns[i])]
		if s == nil {
			s = &shape{}
			shapes[text(columns[i])] = s
		}
		col := column{name: text(columns[i+1]), primary: number(columns[i+2]), generated: number(columns[i+3]) > 1}
		if number(columns[i+4]) != 0 {
			col.fallback = text(columns[i+5])
		}
		s.columns = append(s.columns, col)
		if col.primary > 0 {
			s.primary = append(s.primary, col)
		}
	}
	indexes, err := readUniqueIndexes(c, these)
	if err != nil {
		return nil, err
	}
	for name, s := range shapes {
		slices.SortFunc(s.primary, func(a, b column) int { return int(a.primary - b.primary) })
		s.collect(indexes[name])
	}
	return shapes, nil
}

// uniqueIndex is an index as SQLite describes it.
type uniqueIndex struct {
	name     string
	primary  bool // of the primary key
	partial  bool
	hasRowid bool   // its entries point to rows by their rowid
	where    string // of a partial index
	terms    []indexTerm
}

type indexTerm struct {
	column    int64 // in the table; -2 for an expression
	collation string
	expr      string
}

// readUniqueIndexes returns the unique indexes by table.
func readUniqueIndexes(c *shim.Conn, these string) (map[string][]*uniqueIndex, error) {
	rows, err := c.Query(these + ` SELECT t.name, l.name, l.origin, l.partial, x.cid, x.coll, x.key` +
		` FROM t, pragma_index_list(t.name, 'main') l, pragma_index_xinfo(l.name, 'main') x` +
		` WHERE l."unique" ORDER BY t.name, l.seq, x.seqno`)
	if err != nil {
		return nil, err
	}
	byTable := map[string][]*uniqueIndex{}
	var last *uniqueIndex
	var written []*uniqueIndex // whose text must be read
	for i := 0; i < len(rows); i += 7 {
		table, name := text(rows[i]), text(rows[i+1])
		if last == nil || last.name != name {
			last = &uniqueIndex{name: name, primary: text(rows[i+2]) == "pk", partial: number(rows[i+3]) != 0}
			byTable[table] = append(byTable[table], last)
			if last.partial {
				written = append(written, last)
			}
		}
		const rowidColumn, exprColumn = -1, -2
		switch cid := number(rows[i+4]); {
		case number(rows[i+6]) == 0:
			last.hasRowid = last.hasRowid || cid == rowidColumn
		default:
			last.terms = append(last.terms, indexTerm{column: cid, collation: text(rows[i+5])})
			if cid == exprColumn && !slices.Contains(written, last) {
				written = append(written, last)
			}
		}
	}
	if len(written) == 0 {
		return byTable, nil
	}
	return byTable, readIndexTexts(c, written)
}

// collect turns indexes into the unique keys of the table.
func (s *shape) collect(indexes []*uniqueIndex) {
	withoutRowid, primaryIndexed := false, false
	for _, index := range indexes {
		if index.primary {
			primaryIndexed = true
			withoutRowid = !index.hasRowid
		}
	}
	switch {
	case withoutRowid:
	case len(s.primary) == 1 && !primaryIndexed:
		s.rowid = s.primary[0].name
	default:
		for _, name := range []string{"rowid", "_rowid_", "oid"} {
			if !slices.ContainsFunc(s.columns, func(c column) bool { return equalName(c.name, name) }) {
				s.rowid = name
				break
			}
		}
	}
	if s.rowid != "" {
		s.unique = append(s.unique, uniqueKey{terms: []term{{column: column{name: s.rowid}}}})
	}
	for _, index := range indexes {
		key := uniqueKey{where: index.where}
		for _, t := range index.terms {
			out := term{collation: t.collation, expr: t.expr}
			if t.expr == "" {
				out.column = s.columns[t.column]
			}
			key.terms = append(key.terms, out)
		}
		if len(key.terms) <= maxKeyTerms && len(s.unique) < maxUniqueKeys {
			s.unique = append(s.unique, key)
		}
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func number(v any) int64 {
	n, _ := v.(int64)
	return n
}
