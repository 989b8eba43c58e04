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
var operations = [...]string{"insert", "update", "delete"}

// The two arms of a fence. The first refuses an owner that was closed, and by
// calling a function that only owners have, everybody else. The second refuses
// an owner that was taken over while the lock failed to keep the other out.
const (
	firstArm  = `SELECT CASE WHEN coop_write_permit() != 1 THEN RAISE(ABORT,'Coop writer fenced')`
	secondArm = ` WHEN coop_context('fence') IS NOT (SELECT fence FROM coop_owner) THEN RAISE(ABORT,'Coop writer superseded')`
)

// trigger is one of ours, as sqlite_schema shows it.
type trigger struct{ name, table, sql string }

// fenceTriggers are the three that the table must have.
func fenceTriggers(table string, bothArms bool) [len(operations)]trigger {
	body := firstArm
	// coop_owner's own fence has the first arm only, or nobody could take over.
	if bothArms && table != ownerTable {
		body += secondArm
	}
	var out [len(operations)]trigger
	for i, op := range operations {
		name := fencePrefix + table + "_" + op
		out[i] = trigger{name, table, triggerSQL(name, "BEFORE", op, table, body+" END;")}
	}
	return out
}

// ownerFences are coop_owner's.
var ownerFences = fenceTriggers(ownerTable, false)

// triggerSQL is the text that sqlite_schema keeps of a trigger of ours. SQLite
// writes the quoted table name the same way when the table is renamed.
func triggerSQL(name, when, op, table, body string) string {
	return "CREATE TRIGGER " + quoteName(name) + " " + when + " " + strings.ToUpper(op) + " ON " + quoteName(table) +
		" BEGIN " + body + " END"
}

// create is the statement that makes the trigger in main.
func (t trigger) create() string {
	return strings.Replace(t.sql, "CREATE TRIGGER ", "CREATE TRIGGER main.", 1)
}

func dropTrigger(name string) string { return "DROP TRIGGER main." + quoteName(name) }

func isFenceName(name string) bool {
	return len(name) >= len(fencePrefix) && equalName(name[:len(fencePrefix)], fencePrefix)
}
