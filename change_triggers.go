package coopsqlite

import (
	"encoding/json"
	"fmt"
	"strings"
)

// changesSQL makes the table that the tracking triggers append to. The numbers
// have no gaps: SQLite gives a new row the greatest number plus one, and the
// row with the greatest is never deleted (see keepNewest).
const changesSQL = `CREATE TABLE main.coop_changes(
 seq INTEGER PRIMARY KEY,
 time INTEGER NOT NULL,
 epoch INTEGER NOT NULL,
 tx INTEGER NOT NULL,
 tbl TEXT NOT NULL,
 op TEXT NOT NULL,
 key TEXT,
 old TEXT,
 new TEXT,
 actor TEXT,
 metadata TEXT
)`

const changePrefix = "coop_change_"

// keepNewest makes DELETE FROM coop_changes pass over the newest row, so that
// a number is never given twice, and a reader of the feed misses nothing.
var keepNewest = changeTrigger(changesTable, "newest", "BEFORE DELETE", "",
	"SELECT RAISE(IGNORE) WHERE OLD.seq = (SELECT max(seq) FROM coop_changes);")

// circumstances begin each row of coop_changes.
const (
	changeColumns = "INSERT INTO coop_changes(actor,metadata,time,epoch,tx,tbl,op,key,old,new)"
	circumstances = "CASE WHEN 1 THEN coop_context('actor') ELSE coop_write_permit() END,coop_change('metadata'),coop_change('time'),coop_change('epoch'),coop_change('tx'),"
)

// changeTriggers are those that record what happens to a table, in the order in
// which they are made; SQLite fires the newest first.
//
// AFTER each operation one appends the row as it was and as it is. REPLACE
// deletes the rows that are in its way without a word to any trigger, unless
// recursive_triggers is on, and turning that on would make other triggers run
// which the user knows do not (https://sqlite.org/lang_conflict.html). So two
// more, BEFORE, look for rows that collide with the new one and let the shim
// keep them; once the new row is in, they are gone, and AFTER that is recorded
// first. If it never comes in (ON CONFLICT IGNORE, an upsert), nothing is.
func changeTriggers(table string, s *shape) []trigger {
	t := tracked{table, s}
	out := []trigger{
		changeTrigger(table, "delete", "AFTER DELETE", "", t.record("delete", "OLD", "OLD", "")),
		changeTrigger(table, "insert", "AFTER INSERT", "", t.record("insert", "NEW", "", "NEW")),
		t.update(),
	}
	if s.byRowid() {
		// The rowid is no column: a row that has another is another one.
		out = append(out, changeTrigger(table, "update_rowid", "AFTER UPDATE", " WHEN NOT ("+t.sameRow("OLD", "NEW")+")",
			t.record("delete", "OLD", "OLD", "")+t.record("insert", "NEW", "", "NEW")))
	}
	if s.identity() == nil || len(s.unique) == 0 {
		return out
	}
	return append(out,
		changeTrigger(table, "insert_replaced", "AFTER INSERT", whenKept, t.replaced("NULL")),
		changeTrigger(table, "update_replaced", "AFTER UPDATE", whenKept, t.replaced(t.keyOf("OLD", false))+t.moved()),
		changeTrigger(table, "insert_collision", "BEFORE INSERT", whenPermitted, t.collisions("")),
		changeTrigger(table, "update_collision", "BEFORE UPDATE"+t.ofKeys(), whenPermitted, t.collisions(" AND NOT ("+t.sameRow("r", "OLD")+")")))
}

// SQLite may compile these triggers before the fence, and the error that others
// get must name the function that the fence would have named: coop_write_permit
// to those who have neither, coop_context to those who have that one. Of the
// missing functions that follow each other in one expression SQLite names the
// last, and it goes no further. So these two, in this order, end the condition
// of each trigger that has one, and begin each row of coop_changes. They decide
// nothing: for the owner they are true.
const (
	ifPermitted   = "coop_context('fence') AND coop_write_permit()"
	whenPermitted = " WHEN " + ifPermitted
	whenKept      = " WHEN coop_kept() AND " + ifPermitted
)

func changeTrigger(table, suffix, event, when, body string) trigger {
	name := changePrefix + table + "_" + suffix
	return trigger{name, table, "CREATE TRIGGER " + quoteName(name) + " " + event + " ON " + quoteName(table) + when + " BEGIN " + body + " END"}
}

// tracked writes the SQL that records one table.
type tracked struct {
	table string
	*shape
}

// record appends one change; old and new name the row, or are empty.
func (t tracked) record(op, key, old, new string) string {
	return t.append(op, t.keyOf(key, op == "delete"), t.rowOf(old), t.rowOf(new))
}

// append uses VALUES and not SELECT: into a table with triggers, SQLite takes
// the rows of a SELECT by way of a temporary table, which costs more than all
// the rest.
func (t tracked) append(op, key, old, new string) string {
	return changeColumns + " VALUES(" + circumstances + quoteText(t.table) + "," + quoteText(op) + "," + key + "," + old + "," + new + ");"
}

// update appends an update, unless it changed nothing.
func (t tracked) update() trigger {
	when := " WHEN "
	if t.byRowid() {
		when += t.sameRow("OLD", "NEW") + " AND "
	}
	when += "coop_differ(" + t.rowOf("OLD") + "," + t.rowOf("NEW") + ") AND " + ifPermitted
	return changeTrigger(t.table, "update", "AFTER UPDATE", when,
		t.append("update", t.keyOf("OLD", false), "coop_differ('old')", "coop_differ('new')"))
}

// collisions lets the shim keep the rows that have the new row's value of any
// unique key.
func (t tracked) collisions(but string) string {
	var sql strings.Builder
	for i, key := range t.unique {
		conditions := make([]string, 0, len(key.terms)+2)
		for _, term := range key.terms {
			condition := term.ofRow() + "=" + t.valueOf(term)
			if term.collation != "" {
				condition += " COLLATE " + quoteName(term.collation)
			}
			conditions = append(conditions, condition)
		}
		if key.where != "" {
			conditions = append(conditions, "("+key.where+")", t.evaluated(key.where))
		}
		fmt.Fprintf(&sql, "SELECT coop_keep(%s,%d,%s,%s,%s,%s) FROM %s AS r WHERE %s%s;",
			quoteText(t.table), i, t.valuesOf(key), t.ownValuesOf(key), t.keyOf("r", false), t.rowOf("r"), quoteName(t.table), strings.Join(conditions, " AND "), but)
	}
	return sql.String()
}

// replaced records the rows that had to make way: at most one for each unique
// key. A row that is updated may be kept itself, by an upsert that found it in
// the way; it is not among them.
func (t tracked) replaced(itself string) string {
	rows, values := make([]string, len(t.unique)), make([]string, len(t.unique))
	for i, key := range t.unique {
		rows[i], values[i] = "(0)", t.valuesOf(key)
	}
	name := quoteText(t.table)
	return changeColumns + " SELECT " + circumstances + name + ",'delete',coop_replaced('key'),coop_replaced('row'),NULL FROM (VALUES" +
		strings.Join(rows, ",") + ") WHERE coop_replaced(" + name + "," + itself + "," + strings.Join(values, ",") + ");"
}

// moved tells the shim of an update to a row that it keeps.
func (t tracked) moved() string {
	args := []string{quoteText(t.table), t.keyOf("OLD", false), t.keyOf("NEW", false), t.rowOf("NEW")}
	for _, key := range t.unique {
		args = append(args, t.valuesOf(key))
	}
	return "SELECT coop_moved(" + strings.Join(args, ",") + ");"
}

// ofKeys limits the trigger to updates of columns that can collide.
func (t tracked) ofKeys() string {
	var names []string
	for _, key := range t.unique {
		for _, term := range key.terms {
			if key.where != "" || term.expr != "" || term.column.generated || term.column.name == t.rowid && t.byRowid() {
				return "" // depends on other columns, or is none
			}
			names = append(names, quoteName(term.column.name))
		}
	}
	return " OF " + strings.Join(names, ",")
}

// sameRow compares the identity of two rows.
func (t tracked) sameRow(a, b string) string {
	columns := t.identity()
	if t.rowid != "" {
		columns = []column{{name: t.rowid}} // a primary key may hold NULL
	}
	conditions := make([]string, len(columns))
	for i, c := range columns {
		conditions[i] = a + "." + quoteName(c.name) + " IS " + b + "." + quoteName(c.name)
	}
	return strings.Join(conditions, " AND ")
}

// keyOf encodes the identity of a row. One that is deleted is forgotten by the
// shim, which then need not wait for its replacement.
func (t tracked) keyOf(row string, deleted bool) string {
	columns := t.identity()
	if columns == nil {
		return "NULL"
	}
	key := object(columns, row)
	if deleted {
		return "coop_gone(" + quoteText(t.table) + "," + key + ")"
	}
	return key
}

// rowOf encodes all columns of a row.
func (t tracked) rowOf(row string) string {
	if row == "" {
		return "NULL"
	}
	return object(t.columns, row)
}

// valuesOf encodes the new row's value of a unique key; NULL if a partial index
// leaves the row out.
func (t tracked) valuesOf(key uniqueKey) string {
	values := make([]string, len(key.terms))
	marks := make([]string, len(key.terms))
	for i, term := range key.terms {
		values[i], marks[i] = t.valueOf(term), "?"
	}
	value := encoded("[", marks, values, "]")
	if key.where != "" {
		value = "CASE WHEN " + t.evaluated(key.where) + " THEN " + value + " END"
	}
	return value
}

// ownValuesOf encodes the value of a unique key of a row that is in the way.
func (t tracked) ownValuesOf(key uniqueKey) string {
	values := make([]string, len(key.terms))
	marks := make([]string, len(key.terms))
	for i, term := range key.terms {
		values[i], marks[i] = term.ofRow(), "?"
	}
	return encoded("[", marks, values, "]")
}

func (t term) ofRow() string {
	if t.expr != "" {
		return "(" + t.expr + ")"
	}
	return "r." + quoteName(t.column.name)
}

// valueOf is the new row's value of one term. Where NULL is not allowed, ON
// CONFLICT REPLACE puts the default in its place later.
func (t tracked) valueOf(term term) string {
	switch {
	case term.expr != "":
		return t.evaluated(term.expr)
	case term.column.generated:
		// SQLite computes it before the trigger from the columns that are
		// updated and those that a trigger names: name them all.
		return t.evaluated(quoteName(term.column.name))
	case term.column.fallback != "":
		return "ifnull(NEW." + quoteName(term.column.name) + ",(" + term.column.fallback + "))"
	}
	return "NEW." + quoteName(term.column.name)
}

// evaluated is the value of an index's expression for the new row. The names
// in it have no qualifier (SQLite forbids that), so they are found in FROM.
func (t tracked) evaluated(expr string) string {
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = "NEW." + quoteName(c.name) + " AS " + quoteName(c.name)
	}
	return "(SELECT " + expr + " FROM (SELECT " + strings.Join(columns, ",") + "))"
}

// object encodes columns of a row as a JSON object.
func object(columns []column, row string) string {
	values := make([]string, len(columns))
	marks := make([]string, len(columns))
	for i, c := range columns {
		values[i], marks[i] = row+"."+quoteName(c.name), jsonName(c.name)+":?"
	}
	return encoded("{", marks, values, "}")
}

// valuesPerCall keeps below the number of arguments that every build of SQLite
// allows (https://sqlite.org/limits.html#max_function_arg).
const valuesPerCall = 100

// encoded calls coop_row as often as the number of values demands. Marks stand
// for the values in the template: a question mark, and what comes before it.
func encoded(open string, marks, values []string, end string) string {
	var calls []string
	for len(values) > valuesPerCall {
		calls = append(calls, call(open+strings.Join(marks[:valuesPerCall], ","), values[:valuesPerCall]))
		open, marks, values = ",", marks[valuesPerCall:], values[valuesPerCall:]
	}
	calls = append(calls, call(open+strings.Join(marks, ",")+end, values))
	return strings.Join(calls, "||")
}

func call(template string, values []string) string {
	return "coop_row(" + quoteText(template) + "," + strings.Join(values, ",") + ")"
}

// jsonName is a name as a JSON string without a question mark.
func jsonName(name string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(name) // a string can always be encoded
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "?", `\u003f`)
}

func isChangeName(name string) bool {
	return len(name) >= len(changePrefix) && equalName(name[:len(changePrefix)], changePrefix)
}
