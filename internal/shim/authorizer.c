//go:build !windows

/* What a statement is about to do, as SQLite tells the authorizer while it is
** compiled: https://sqlite.org/c3ref/set_authorizer.html */
#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <stdlib.h>
#include <string.h>

static int is_schema_table(const char *name) {
  return name && (strcmp(name, "sqlite_master") == 0 || strcmp(name, "sqlite_schema") == 0);
}

/* PRAGMAs whose argument only says what is asked about, or what is done once. */
static int leaves_no_setting(const char *pragma) {
  static const char *const names[] = {
      "table_info",       "table_xinfo",     "table_list",  "index_info",    "index_xinfo",        "index_list", "foreign_key_list",
      "foreign_key_check", "integrity_check", "quick_check", "wal_checkpoint", "incremental_vacuum", "optimize",   "busy_timeout"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    if (sqlite3_stricmp(pragma, names[i]) == 0) return 1;
  }
  return 0;
}

static void saw_write(coop_conn *c, const char *schema) {
  if (!schema || strcmp(schema, "main") == 0) {
    c->seen |= COOP_SEEN_WRITE_MAIN;
    if (c->sealed & COOP_RUN_TEMP) c->denied = 1;
  } else if (strcmp(schema, "temp") == 0) {
    c->seen |= COOP_SEEN_WRITE_TEMP;
  } else {
    size_t n = strlen(schema);
    int again = c->seen & COOP_SEEN_WRITE_ATTACHED;
    c->seen |= COOP_SEEN_WRITE_ATTACHED;
    if (n >= sizeof c->attached || (again && strcmp(c->attached, schema) != 0)) c->attached[0] = 0;
    else memcpy(c->attached, schema, n + 1);
    if (c->sealed & COOP_RUN_SEALED) c->denied = 1;
  }
}

static void saw_alter(coop_conn *c, const char *table) {
  size_t n = table ? strlen(table) : 0;
  c->seen |= COOP_SEEN_DDL | COOP_SEEN_ALTER;
  if (n >= sizeof c->altered) n = 0;
  if (n) memcpy(c->altered, table, n);
  c->altered[n] = 0;
}

/* The schema does not matter: to be careful costs nothing much. */
static void saw_table(coop_conn *c, const char *table) {
  if (table && sqlite3_stricmp(table, "coop_owner") == 0) c->seen |= COOP_SEEN_OWNER;
}

static int is_fence(const char *trigger) {
  return trigger && strncmp(trigger, "coop_fence_", sizeof "coop_fence_" - 1) == 0;
}

static int is_collision(const char *trigger) {
  static const char prefix[] = "coop_change_", suffix[] = "_collision";
  size_t n = trigger ? strlen(trigger) : 0;
  return n > sizeof prefix + sizeof suffix && strncmp(trigger, prefix, sizeof prefix - 1) == 0 &&
         strcmp(trigger + n - (sizeof suffix - 1), suffix) == 0;
}

/* Schema-wide settings that are kept in the database file's header. */
static int is_in_header(const char *pragma) {
  return sqlite3_stricmp(pragma, "user_version") == 0 || sqlite3_stricmp(pragma, "application_id") == 0 ||
         sqlite3_stricmp(pragma, "schema_version") == 0;
}

static void saw_pragma(coop_conn *c, const char *name, const char *arg, const char *schema) {
  int journal = sqlite3_stricmp(name, "journal_mode") == 0;
  c->seen |= COOP_SEEN_PRAGMA;
  if (!arg && journal) c->seen |= COOP_SEEN_PRAGMA_READS;
  if (sqlite3_stricmp(name, "busy_timeout") == 0) {
    c->seen |= COOP_SEEN_BUSY_TIMEOUT;
    if (arg) coop_set_busy_limit(c, strtoll(arg, 0, 10));
  }
  if (!arg || leaves_no_setting(name)) return;
  c->seen |= COOP_SEEN_PRAGMA_SET;
  if (schema && strcmp(schema, "main") != 0 && strcmp(schema, "temp") != 0) {
    saw_write(c, schema);
  } else if (is_in_header(name)) {
    c->seen |= COOP_SEEN_HEADER;
  } else if (journal && !schema) { /* means every database there is */
    c->seen |= COOP_SEEN_WRITE_ATTACHED;
    c->attached[0] = 0;
  }
}

/* Records what a statement is about to do. It refuses nothing, but for what a
** statement that prepares itself again would write to an attached database, or to
** main: when it was judged it did not.
** https://sqlite.org/c3ref/c_alter_table.html lists the actions. */
int coop_authorize(void *p, int action, const char *a, const char *b, const char *schema, const char *trigger) {
  coop_conn *c = p;
  c->authorized++;
  switch (action) {
  case SQLITE_SELECT: /* the whole body of these; ignored, it compiles to nothing */
    if (c->omit & COOP_OMIT_FENCES && is_fence(trigger)) return SQLITE_IGNORE;
    if (c->omit & COOP_OMIT_COLLISIONS && is_collision(trigger)) return SQLITE_IGNORE;
    break;
  case SQLITE_INSERT:
  case SQLITE_UPDATE:
  case SQLITE_DELETE:
    if (is_schema_table(a) && schema && strcmp(schema, "main") == 0) c->seen |= COOP_SEEN_DDL;
    saw_table(c, a);
    saw_write(c, schema);
    break;
  case SQLITE_ALTER_TABLE: /* here the first argument is the schema */
    if (a && strcmp(a, "main") == 0) saw_alter(c, b);
    saw_table(c, b);
    saw_write(c, a);
    break;
  case SQLITE_DROP_TABLE:
    saw_table(c, a);
    /* fall through */
  case SQLITE_DROP_VIEW:
  case SQLITE_DROP_TRIGGER:
    if (a && sqlite3_strnicmp(a, "coop_", 5) == 0) c->seen |= COOP_SEEN_DROPS_OURS;
    break;
  case SQLITE_CREATE_VTABLE:
  case SQLITE_DROP_VTABLE:
    if (schema && strcmp(schema, "main") == 0) c->seen |= COOP_SEEN_DDL;
    saw_write(c, schema);
    break;
  case SQLITE_CREATE_TEMP_TABLE:
  case SQLITE_CREATE_TEMP_TRIGGER:
  case SQLITE_CREATE_TEMP_VIEW:
  case SQLITE_CREATE_TEMP_INDEX:
    c->seen |= COOP_SEEN_TEMP_DDL;
    break;
  case SQLITE_REINDEX:
  case SQLITE_ANALYZE:
    if (schema && strcmp(schema, "main") == 0) c->seen |= COOP_SEEN_DDL;
    saw_write(c, schema);
    break;
  case SQLITE_PRAGMA:
    if (a) saw_pragma(c, a, b, schema);
    break;
  case SQLITE_ATTACH:
  case SQLITE_DETACH:
    c->seen |= COOP_SEEN_ATTACH;
    break;
  case SQLITE_SAVEPOINT:
    c->seen |= COOP_SEEN_SAVEPOINT;
    /* fall through */
  case SQLITE_TRANSACTION:
    if (!a) break;
    if (strcmp(a, "BEGIN") == 0) c->seen |= COOP_SEEN_BEGIN;
    else if (strcmp(a, "ROLLBACK") == 0) c->seen |= COOP_SEEN_ROLLBACK;
    else c->seen |= COOP_SEEN_COMMIT; /* COMMIT and RELEASE */
    break;
  }
  return c->denied ? SQLITE_DENY : SQLITE_OK;
}
