package coopsqlite

import "strings"

// Names that begin with coop_ are ours.
const (
	ownPrefix    = "coop_"
	ownerTable   = "coop_owner"
	changesTable = "coop_changes"
	fencePrefix  = "coop_fence_"
)

// operations are the statements that a fence guards against.
var (
	operations      = [...]string{"insert", "update", "delete"}
	upperOperations = [...]string{"INSERT", "UPDATE", "DELETE"}
)

// The two arms of a fence. The first refuses an owner that was closed, and by
// calling a function that only owners have, everybody else. The second refuses
// an owner that was taken over while the lock failed to keep the other out.
const (
	firstArm  = `SELECT CASE WHEN coop_write_permit() != 1 THEN RAISE(ABORT,'Coop writer fenced')`
	secondArm = ` WHEN coop_context('fence') IS NOT (SELECT fence FROM coop_owner) THEN RAISE(ABORT,'Coop writer superseded')`
)

// The arms stand in one view, which the triggers select from: every connection
// keeps all triggers of the schema in memory, so what three thousand of them
// repeat is dear. All columns are selected because SQLite does not compute
// those that are not.
const (
	guardView = "coop_guard"
	guardBody = "SELECT * FROM " + guardView + ";"
)

// guardSQL is the view as sqlite_schema shows it.
func guardSQL(bothArms bool) string {
	arms := firstArm
	if bothArms {
		arms += secondArm
	}
	return "CREATE VIEW " + guardView + " AS " + arms + " END"
}

// trigger is one of ours, as sqlite_schema shows it.
type trigger struct{ name, table, sql string }

// fenceTriggers are the three that the table must have. coop_owner's have the
// first arm only, or nobody could take over.
func fenceTriggers(table string) [len(operations)]trigger {
	body := guardBody
	if table == ownerTable {
		body = firstArm + " END;"
	}
	var out [len(operations)]trigger
	for i, op := range operations {
		name := fencePrefix + table + "_" + op
		out[i] = trigger{name, table, triggerSQL(name, "BEFORE", op, table, body)}
	}
	return out
}

// guards reports whether f is what fenceTriggers has for the table and the
// operation of that index, without writing it out. It says no where a name has
// quotes in it.
func (f trigger) guards(table string, i int) bool {
	if table == ownerTable {
		return f == ownerFences[i]
	}
	return f.table == table && spells(f.name, fencePrefix, table, "_", operations[i]) &&
		spells(f.sql, `CREATE TRIGGER "`, f.name, `" BEFORE `, upperOperations[i], ` ON "`, table, `" BEGIN `, guardBody, ` END`)
}

// spells reports whether text is its parts, one after the other.
func spells(text string, parts ...string) bool {
	for _, part := range parts {
		rest, ok := strings.CutPrefix(text, part)
		if !ok {
			return false
		}
		text = rest
	}
	return text == ""
}

// ownerFences are coop_owner's.
var ownerFences = fenceTriggers(ownerTable)

// triggerSQL is the text that sqlite_schema keeps of a trigger of ours. SQLite
// writes the quoted table name the same way when the table is renamed.
func triggerSQL(name, when, op, table, body string) string {
	return "CREATE TRIGGER " + quoteName(name) + " " + when + " " + strings.ToUpper(op) + " ON " + quoteName(table) +
		" BEGIN " + body + " END"
}

// create is the statement that makes the trigger in main.
func (t trigger) create() string { return inMain(t.sql, "CREATE TRIGGER ") }

// inMain names the schema in a CREATE statement as sqlite_schema keeps it.
func inMain(sql, create string) string { return strings.Replace(sql, create, create+"main.", 1) }

func dropTrigger(name string) string { return "DROP TRIGGER main." + quoteName(name) }

func isFenceName(name string) bool {
	return len(name) >= len(fencePrefix) && equalName(name[:len(fencePrefix)], fencePrefix)
}
