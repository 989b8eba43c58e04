//go:build !windows

/* Statements: compiled, judged and run; the caller's in one crossing, our own by
** name or as a text. */
#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <stdlib.h>
#include <string.h>

int coop_prepare(coop_conn *c, const char *sql, int n, int persistent, int omit, coop_stmt_info *out) {
  const char *tail = sql;
  int rc;
  c->seen = 0;
  c->omit = omit;
  out->stmt = 0;
  rc = sqlite3_prepare_v3(c->db, sql, n, persistent ? SQLITE_PREPARE_PERSISTENT : 0, &out->stmt, &tail);
  c->omit = 0;
  /* PRAGMA busy_timeout has put SQLite's own handler in place of ours. */
  if (c->seen & COOP_SEEN_BUSY_TIMEOUT) coop_install_busy_handler(c);
  if (rc != SQLITE_OK) return rc;
  out->tail = (int32_t)(tail - sql);
  if (!out->stmt) return SQLITE_OK;
  out->params = sqlite3_bind_parameter_count(out->stmt);
  out->columns = sqlite3_column_count(out->stmt);
  out->readonly = sqlite3_stmt_readonly(out->stmt);
  out->explain = sqlite3_stmt_isexplain(out->stmt);
  return SQLITE_OK;
}

/* Classifies a statement by the program SQLite compiled for it, for when the
** user's authorizer has replaced ours, and for VACUUM, which asks none.
** https://sqlite.org/opcode.html */
int coop_explain(coop_conn *c, const char *sql, int n) {
  static const char prefix[] = "EXPLAIN ";
  sqlite3_stmt *s = 0;
  int rc, cookie = 0;
  uint32_t seen = 0;
  char *text = malloc(sizeof prefix + n);
  if (!text) return SQLITE_NOMEM;
  memcpy(text, prefix, sizeof prefix - 1);
  memcpy(text + sizeof prefix - 1, sql, n);
  rc = sqlite3_prepare_v3(c->db, text, (int)(sizeof prefix - 1 + n), 0, &s, 0);
  free(text);
  if (rc != SQLITE_OK) return rc;
  while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
    const char *op = (const char *)sqlite3_column_text(s, 1);
    long long p1 = sqlite3_column_int64(s, 2), p2 = sqlite3_column_int64(s, 3);
    if (!op) continue;
    if (strcmp(op, "Transaction") == 0 && p2) {
      seen |= p1 == 0 ? COOP_SEEN_WRITE_MAIN : p1 == 1 ? COOP_SEEN_WRITE_TEMP : COOP_SEEN_WRITE_ATTACHED;
    } else if (strcmp(op, "ParseSchema") == 0 || strcmp(op, "DropTable") == 0 || strcmp(op, "DropTrigger") == 0 ||
               strcmp(op, "DropIndex") == 0 || strcmp(op, "VCreate") == 0 || strcmp(op, "VDestroy") == 0) {
      if (p1 == 0) seen |= COOP_SEEN_DDL;
      if (p1 == 1) seen |= COOP_SEEN_TEMP_DDL;
    } else if (strcmp(op, "SetCookie") == 0) {
      cookie = 1;
    } else if (strcmp(op, "AutoCommit") == 0) {
      seen |= p1 == 0 ? COOP_SEEN_BEGIN : p2 ? COOP_SEEN_ROLLBACK : COOP_SEEN_COMMIT;
    } else if (strcmp(op, "Savepoint") == 0) {
      seen |= COOP_SEEN_SAVEPOINT | (p1 == 0 ? COOP_SEEN_BEGIN : p1 == 1 ? COOP_SEEN_COMMIT : COOP_SEEN_ROLLBACK);
    } else if (strcmp(op, "Vacuum") == 0) {
      seen |= COOP_SEEN_NO_WRAP | (p2 ? COOP_SEEN_VACUUM_INTO : p1 > 1 ? COOP_SEEN_WRITE_ATTACHED : 0);
    } else if (strcmp(op, "JournalMode") == 0 || strcmp(op, "Checkpoint") == 0) {
      seen |= COOP_SEEN_NO_WRAP;
    } else if (strcmp(op, "OpenRead") == 0 || strcmp(op, "OpenWrite") == 0) {
      seen |= COOP_SEEN_TABLES;
    }
  }
  sqlite3_finalize(s);
  if (cookie && !(seen & COOP_SEEN_TABLES)) seen |= COOP_SEEN_PRAGMA;
  c->seen |= seen;
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* What lies in buf must stay there until the bindings are cleared; for what is
** pinned, the caller says. */
int coop_bind(sqlite3_stmt *s, const coop_arg *a, int n, const char *buf, void (*pinned)(void *)) {
  int i, rc = SQLITE_OK;
  for (i = 0; i < n && rc == SQLITE_OK; i++, a++) {
    const void *p = a->offset < 0 ? (const void *)a->address : buf + a->offset;
    void (*lasting)(void *) = a->offset < 0 ? pinned : SQLITE_STATIC;
    switch (a->type) {
    case SQLITE_INTEGER: rc = sqlite3_bind_int64(s, a->index, a->i); break;
    case SQLITE_FLOAT: rc = sqlite3_bind_double(s, a->index, a->f); break;
    case SQLITE_TEXT: rc = sqlite3_bind_text64(s, a->index, p, a->i, lasting, SQLITE_UTF8); break;
    case SQLITE_BLOB: rc = sqlite3_bind_blob64(s, a->index, p, a->i, lasting); break;
    default: rc = sqlite3_bind_null(s, a->index);
    }
  }
  return rc;
}

/* Binds, steps once (which does all of a statement's changes, RETURNING or
** not), and resets. The bindings are cleared: they point into Go memory. The
** connection's mutex is recursive: taken once here, it costs the calls inside
** a tenth of what it would. The connection comes as a number because the Go
** runtime inspects every pointer to a structure that holds pointers. */
int coop_run(uintptr_t conn, sqlite3_stmt *s, int flags, coop_arg *args, int n, const char *buf) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  int rc, reset;
  sqlite3_mutex_enter(mutex);
  coop_changes_new_statement(&c->tracking);
  rc = coop_bind(s, args, n, buf, SQLITE_STATIC);
  if (rc == SQLITE_OK) {
    c->omit = flags & COOP_RUN_UNGUARDED; /* a step may compile again */
    c->sealed = flags & (COOP_RUN_SEALED | COOP_RUN_TEMP);
    rc = coop_step(c, s);
    c->omit = c->sealed = 0;
    c->rowid = sqlite3_last_insert_rowid(c->db);
    c->changes = sqlite3_changes(c->db);
    if (!sqlite3_stmt_readonly(s)) c->followed = 0;
    /* A statement that stopped at a row commits here, and can fail to. */
    reset = sqlite3_reset(s);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = reset;
    else if (reset != SQLITE_OK) rc = reset;
  }
  if (n > 0) sqlite3_clear_bindings(s);
  if (c->denied) {
    c->denied = 0;
    rc = COOP_DENIED;
  }
  coop_state(c);
  sqlite3_mutex_leave(mutex);
  return rc;
}

/* Runs one statement as a transaction of its own: BEGIN IMMEDIATE, one question
** to the fence, the statement, COMMIT. If the version is not negative, the
** schema must have it. When something fails, the caller reads the error and
** rolls back what may be open. */
int coop_run_alone(uintptr_t conn, sqlite3_stmt *s, int flags, coop_arg *args, int n, const char *buf, int64_t version) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  int rc;
  sqlite3_mutex_enter(mutex);
  rc = coop_begin(c, COOP_STMT_BEGIN_IMMEDIATE, 1);
  if (rc == SQLITE_OK && version >= 0 && c->version != version) rc = COOP_MOVED;
  if (rc == SQLITE_OK) rc = coop_run(conn, s, flags, args, n, buf);
  if (rc == SQLITE_OK) rc = coop_run_kept(c, COOP_STMT_COMMIT);
  sqlite3_mutex_leave(mutex);
  return rc;
}

int coop_finalize(sqlite3_stmt *s) { return sqlite3_finalize(s); }

int coop_param_index(sqlite3_stmt *s, const char *name) { return sqlite3_bind_parameter_index(s, name); }

/* Runs each statement of a text of our own. */
int coop_exec(coop_conn *c, const char *sql, int n) {
  int rc = SQLITE_OK;
  while (n > 0 && rc == SQLITE_OK) {
    sqlite3_stmt *s = 0;
    const char *tail = sql + n;
    rc = sqlite3_prepare_v3(c->db, sql, n, 0, &s, &tail);
    if (rc != SQLITE_OK) break;
    if (s) {
      while ((rc = coop_step(c, s)) == SQLITE_ROW) {}
      if (!sqlite3_stmt_readonly(s)) c->followed = 0;
      rc = sqlite3_finalize(s);
    }
    n -= (int)(tail - sql);
    sql = tail;
  }
  coop_state(c);
  return rc;
}

static const char *const kept[COOP_STMT_COUNT] = {
    "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "COMMIT", "ROLLBACK",
    "SAVEPOINT coop_savepoint", "RELEASE coop_savepoint", "ROLLBACK TO coop_savepoint",
    "DELETE FROM main.coop_owner WHERE 0", "SELECT fence FROM main.coop_owner", "PRAGMA main.schema_version"};

static int prepare_kept(coop_conn *c, int which) {
  if (c->stmts[which]) return SQLITE_OK;
  return sqlite3_prepare_v3(c->db, kept[which], -1, SQLITE_PREPARE_PERSISTENT, &c->stmts[which], 0);
}

int coop_run_kept(coop_conn *c, int which) {
  int rc = prepare_kept(c, which);
  if (rc == SQLITE_OK) {
    coop_counts counts;
    if (which == COOP_STMT_LOCK_FOR_WRITE) coop_counters(c, &counts);
    coop_step(c, c->stmts[which]);
    rc = sqlite3_reset(c->stmts[which]);
    if (which == COOP_STMT_LOCK_FOR_WRITE) coop_resume(c, &counts); /* it is not the user's */
  }
  coop_state(c);
  return rc;
}

/* Asks what the triggers ask, for what no trigger sees: DDL, and a table that
** is not tracked. */
int coop_check_fence(coop_conn *c) {
  sqlite3_stmt *s;
  int rc, found = COOP_NO_OWNER;
  if (!c->store) return SQLITE_OK; /* a reader: SQLite itself refuses its writes */
  if (!coop_load(&c->store->permit)) return COOP_FENCED;
  if (prepare_kept(c, COOP_STMT_FENCE) != SQLITE_OK) return COOP_NO_OWNER;
  s = c->stmts[COOP_STMT_FENCE];
  rc = coop_step(c, s);
  if (rc == SQLITE_ROW) {
    int64_t fence = __atomic_load_n(&c->store->fence, __ATOMIC_ACQUIRE);
    found = sqlite3_column_int64(s, 0) == fence ? SQLITE_OK : COOP_SUPERSEDED;
  }
  rc = sqlite3_reset(s);
  if (rc == SQLITE_ERROR) { /* the table is gone: do not keep the statement */
    sqlite3_finalize(s);
    c->stmts[COOP_STMT_FENCE] = 0;
    return COOP_NO_OWNER;
  }
  return rc != SQLITE_OK ? rc : found;
}

int coop_begin(coop_conn *c, int kind, int check_fence) {
  int rc = coop_run_kept(c, kind);
  if (rc != SQLITE_OK || !check_fence) return rc;
  rc = coop_schema_version(c);
  if (rc != SQLITE_OK) return rc;
  return coop_check_fence(c);
}

int coop_schema_version(coop_conn *c) {
  sqlite3_stmt *s;
  int rc = prepare_kept(c, COOP_STMT_SCHEMA_VERSION);
  if (rc != SQLITE_OK) return rc;
  s = c->stmts[COOP_STMT_SCHEMA_VERSION];
  if (coop_step(c, s) == SQLITE_ROW) c->version = sqlite3_column_int64(s, 0);
  return sqlite3_reset(s);
}

/* Constraints that fail only at COMMIT: in a group of transactions they must
** be laid to the member that caused them. */
int coop_deferred_violations(coop_conn *c) {
  int current = 0, high = 0;
  sqlite3_db_status(c->db, SQLITE_DBSTATUS_DEFERRED_FKS, &current, &high, 0);
  return current > 0;
}

static int pack(coop_conn *c, const void *p, int64_t n) {
  if (c->packed_len + n > c->packed_cap) {
    int64_t cap = (c->packed_cap + n) * 2;
    char *grown = realloc(c->packed, cap);
    if (!grown) return SQLITE_NOMEM;
    c->packed = grown;
    c->packed_cap = cap;
  }
  if (n) memcpy(c->packed + c->packed_len, p, n);
  c->packed_len += n;
  return SQLITE_OK;
}

/* Runs a query of our own and leaves all its rows in one buffer: per value a
** byte of type, then eight bytes, or a length of four bytes and the content. */
int coop_pack(coop_conn *c, const char *sql, int n) {
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db); /* as in coop_run */
  sqlite3_stmt *s = 0;
  int i, columns, rc = sqlite3_prepare_v3(c->db, sql, n, 0, &s, 0), oom = SQLITE_OK;
  c->packed_len = c->packed_values = 0;
  if (rc != SQLITE_OK) return rc;
  sqlite3_mutex_enter(mutex);
  columns = sqlite3_column_count(s);
  while (oom == SQLITE_OK && coop_step(c, s) == SQLITE_ROW) {
    for (i = 0; i < columns && oom == SQLITE_OK; i++) {
      sqlite3_value *value = sqlite3_column_value(s, i); /* as in take_row */
      char type = (char)sqlite3_value_type(value);
      oom = pack(c, &type, 1);
      c->packed_values++;
      if (oom) break;
      if (type == SQLITE_INTEGER) {
        int64_t v = sqlite3_value_int64(value);
        oom = pack(c, &v, 8);
      } else if (type == SQLITE_FLOAT) {
        double v = sqlite3_value_double(value);
        oom = pack(c, &v, 8);
      } else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
        const void *p = type == SQLITE_TEXT ? (const void *)sqlite3_value_text(value) : sqlite3_value_blob(value);
        int32_t len = sqlite3_value_bytes(value);
        oom = pack(c, &len, 4);
        if (!oom) oom = pack(c, p, len);
      }
    }
  }
  rc = sqlite3_finalize(s);
  coop_state(c);
  sqlite3_mutex_leave(mutex);
  return rc != SQLITE_OK ? rc : oom;
}
