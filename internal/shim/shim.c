//go:build !windows

#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The progress handler is asked after this many virtual machine instructions:
** some tens of microseconds of work, too rare to be measurable. */
#define PROGRESS_INTERVAL 1000

static int32_t load(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

coop_store *coop_store_new(int64_t fence) {
  coop_store *s = calloc(1, sizeof *s);
  if (s) {
    s->refs = 1;
    s->fence = fence;
  }
  return s;
}

void coop_store_release(coop_store *s) {
  if (s && __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) == 0) free(s);
}

/* A connection's state outlives whoever drops it first: Go, or SQLite, which
** may close a connection late (sqlite3_close_v2) or replace a function. */
void coop_conn_release(coop_conn *c) {
  if (__atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  coop_store_release(c->store);
  free(c->metadata);
  free(c->packed);
  coop_changes_free(&c->tracking);
  free(c);
}

static void release_function(void *p) { coop_conn_release(p); }

static void write_permit(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_conn *c = sqlite3_user_data(ctx);
  (void)argc;
  (void)argv;
  sqlite3_result_int(ctx, c->store ? load(&c->store->permit) : 0);
}

static void context_value(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_conn *c = sqlite3_user_data(ctx);
  const char *key = (const char *)sqlite3_value_text(argv[0]);
  int32_t n = sqlite3_value_bytes(argv[0]);
  int at = 0;
  (void)argc;
  if (!key) return;
  if (n == 5 && memcmp(key, "fence", 5) == 0) {
    if (c->store) sqlite3_result_int64(ctx, __atomic_load_n(&c->store->fence, __ATOMIC_ACQUIRE));
    return;
  }
  while (at < c->metadata_len) {
    int32_t klen, vlen;
    memcpy(&klen, c->metadata + at, 4);
    memcpy(&vlen, c->metadata + at + 4, 4);
    at += 8;
    if (klen == n && memcmp(c->metadata + at, key, n) == 0) {
      sqlite3_result_text(ctx, c->metadata + at + klen, vlen, SQLITE_TRANSIENT);
      return;
    }
    at += klen + vlen;
  }
}

int coop_set_metadata(coop_conn *c, const char *p, int n) {
  char *copy = 0;
  if (n > 0) {
    copy = malloc(n);
    if (!copy) return SQLITE_NOMEM;
    memcpy(copy, p, n);
  }
  free(c->metadata);
  c->metadata = copy;
  coop_changes_new_metadata(&c->tracking);
  c->metadata_len = n;
  return SQLITE_OK;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* SQLite calls this while another connection holds a lock it needs. The waits
** are short (at most a millisecond) so that a cancelled context ends them at
** once and a freed lock is not left idle. */
static int busy(void *p, int count) {
  coop_conn *c = p;
  struct timespec t = {0, count < 4 ? 100000L << count : 1000000L};
  if (count == 0) c->busy_since = now_ms();
  if (c->cancel && load(c->cancel)) return 0;
  if (now_ms() - c->busy_since >= c->busy_limit) return 0;
  nanosleep(&t, 0);
  return !(c->cancel && load(c->cancel));
}

/* -1: SQLite has not asked for a wait. */
int64_t coop_busy_waited(const coop_conn *c) { return c->busy_since ? now_ms() - c->busy_since : -1; }

static void set_busy_limit(coop_conn *c, int64_t ms) { c->busy_limit = ms > 0 && ms <= INT32_MAX ? ms : 0; }

void coop_install_busy_handler(coop_conn *c) { sqlite3_busy_handler(c->db, busy, c); }

/* Takes over a timeout that was set behind our back, which replaced our
** handler. SQLite does not tell 0 from none. */
void coop_adopt_busy_timeout(coop_conn *c) {
  sqlite3_stmt *s = 0;
  if (sqlite3_prepare_v3(c->db, "PRAGMA busy_timeout", -1, 0, &s, 0) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
    int64_t ms = sqlite3_column_int64(s, 0);
    if (ms > 0) set_busy_limit(c, ms);
  }
  sqlite3_finalize(s);
  coop_install_busy_handler(c);
}

/* sqlite3_interrupt ends every statement of a connection and those that start
** before the last of them has stopped. This ends the one whose flag is set. */
static int progress(void *p) {
  coop_conn *c = p;
  return c->cancel && load(c->cancel);
}

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
  } else if (strcmp(schema, "temp") == 0) {
    c->seen |= COOP_SEEN_WRITE_TEMP;
  } else {
    size_t n = strlen(schema);
    int again = c->seen & COOP_SEEN_WRITE_ATTACHED;
    c->seen |= COOP_SEEN_WRITE_ATTACHED;
    if (n >= sizeof c->attached || (again && strcmp(c->attached, schema) != 0)) c->attached[0] = 0;
    else memcpy(c->attached, schema, n + 1);
    if (c->sealed) c->denied = 1;
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
    if (arg) set_busy_limit(c, strtoll(arg, 0, 10));
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
** statement that prepares itself again would write to an attached database:
** when it was judged it did not.
** https://sqlite.org/c3ref/c_alter_table.html lists the actions. */
static int authorize(void *p, int action, const char *a, const char *b, const char *schema, const char *trigger) {
  coop_conn *c = p;
  c->authorized++;
  switch (action) {
  case SQLITE_SELECT: /* the whole body of a fence; ignored, it compiles to nothing */
    if (c->unguarded && is_fence(trigger)) return SQLITE_IGNORE;
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

static int create_function(coop_conn *c, const char *name, int argc, void (*f)(sqlite3_context *, int, sqlite3_value **)) {
  __atomic_add_fetch(&c->refs, 1, __ATOMIC_ACQ_REL); /* SQLite drops it even when it fails */
  return sqlite3_create_function_v2(c->db, name, argc, SQLITE_UTF8 | SQLITE_INNOCUOUS, c, f, 0, 0, release_function);
}

int coop_conn_new(void *db, coop_store *store, int64_t busy_limit, coop_conn **out) {
  int rc;
  coop_conn *c = calloc(1, sizeof *c);
  if (!c) return SQLITE_NOMEM;
  c->db = db;
  c->refs = 1;
  set_busy_limit(c, busy_limit);
  c->autocommit = 1;
  c->store = store;
  if (store) __atomic_add_fetch(&store->refs, 1, __ATOMIC_ACQ_REL);
  rc = create_function(c, "coop_context", 1, context_value);
  if (rc == SQLITE_OK) rc = create_function(c, "coop_write_permit", 0, write_permit);
  if (rc == SQLITE_OK) rc = coop_changes_register(c);
  if (rc == SQLITE_OK) rc = sqlite3_set_authorizer(c->db, authorize, c);
  if (rc != SQLITE_OK) {
    coop_conn_release(c);
    return rc;
  }
  coop_install_busy_handler(c);
  sqlite3_progress_handler(c->db, PROGRESS_INTERVAL, progress, c);
  *out = c;
  return SQLITE_OK;
}

/* Ends the shim's own statements; call it before the connection is closed. */
void coop_conn_finalize(coop_conn *c) {
  int i;
  coop_changes_finalize(&c->tracking);
  for (i = 0; i < COOP_STMT_COUNT; i++) {
    sqlite3_finalize(c->stmts[i]);
    c->stmts[i] = 0;
  }
}

void coop_state(coop_conn *c) { c->autocommit = sqlite3_get_autocommit(c->db); }

int coop_txn_state(coop_conn *c) { return sqlite3_txn_state(c->db, "main"); }

int coop_prepare(coop_conn *c, const char *sql, int n, int persistent, int unguarded, coop_stmt_info *out) {
  const char *tail = sql;
  int rc;
  c->seen = 0;
  c->unguarded = unguarded;
  out->stmt = 0;
  rc = sqlite3_prepare_v3(c->db, sql, n, persistent ? SQLITE_PREPARE_PERSISTENT : 0, &out->stmt, &tail);
  c->unguarded = 0;
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

static int bind(sqlite3_stmt *s, const coop_arg *a, int n, const char *buf) {
  int i, rc = SQLITE_OK;
  for (i = 0; i < n && rc == SQLITE_OK; i++, a++) {
    const void *p = a->offset < 0 ? (const void *)a->address : buf + a->offset;
    switch (a->type) {
    case SQLITE_INTEGER: rc = sqlite3_bind_int64(s, a->index, a->i); break;
    case SQLITE_FLOAT: rc = sqlite3_bind_double(s, a->index, a->f); break;
    case SQLITE_TEXT: rc = sqlite3_bind_text64(s, a->index, p, a->i, SQLITE_STATIC, SQLITE_UTF8); break;
    case SQLITE_BLOB: rc = sqlite3_bind_blob64(s, a->index, p, a->i, SQLITE_STATIC); break;
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
  rc = bind(s, args, n, buf);
  if (rc == SQLITE_OK) {
    c->unguarded = flags & COOP_RUN_UNGUARDED; /* a step may compile again */
    c->sealed = flags & COOP_RUN_SEALED;
    rc = sqlite3_step(s);
    c->unguarded = c->sealed = 0;
    c->rowid = sqlite3_last_insert_rowid(c->db);
    c->changes = sqlite3_changes(c->db);
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
** to the fence, the statement unguarded, COMMIT. When that fails, the caller
** reads the error and rolls back what may be open. */
int coop_run_alone(uintptr_t conn, sqlite3_stmt *s, int flags, coop_arg *args, int n, const char *buf) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  int rc;
  sqlite3_mutex_enter(mutex);
  rc = coop_begin(c, COOP_STMT_BEGIN_IMMEDIATE, 1);
  if (rc == SQLITE_OK) rc = coop_run(conn, s, flags | COOP_RUN_UNGUARDED, args, n, buf);
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
      while ((rc = sqlite3_step(s)) == SQLITE_ROW) {}
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
    sqlite3_step(c->stmts[which]);
    rc = sqlite3_reset(c->stmts[which]);
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
  if (!load(&c->store->permit)) return COOP_FENCED;
  if (prepare_kept(c, COOP_STMT_FENCE) != SQLITE_OK) return COOP_NO_OWNER;
  s = c->stmts[COOP_STMT_FENCE];
  rc = sqlite3_step(s);
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
  return coop_check_fence(c);
}

int coop_schema_version(coop_conn *c, int64_t *version) {
  sqlite3_stmt *s;
  int rc = prepare_kept(c, COOP_STMT_SCHEMA_VERSION);
  if (rc != SQLITE_OK) return rc;
  s = c->stmts[COOP_STMT_SCHEMA_VERSION];
  if (sqlite3_step(s) == SQLITE_ROW) *version = sqlite3_column_int64(s, 0);
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
  sqlite3_stmt *s = 0;
  int i, columns, rc = sqlite3_prepare_v3(c->db, sql, n, 0, &s, 0), oom = SQLITE_OK;
  c->packed_len = c->packed_values = 0;
  if (rc != SQLITE_OK) return rc;
  columns = sqlite3_column_count(s);
  while (oom == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
    for (i = 0; i < columns && oom == SQLITE_OK; i++) {
      char type = (char)sqlite3_column_type(s, i);
      oom = pack(c, &type, 1);
      c->packed_values++;
      if (oom) break;
      if (type == SQLITE_INTEGER) {
        int64_t v = sqlite3_column_int64(s, i);
        oom = pack(c, &v, 8);
      } else if (type == SQLITE_FLOAT) {
        double v = sqlite3_column_double(s, i);
        oom = pack(c, &v, 8);
      } else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
        const void *p = type == SQLITE_TEXT ? (const void *)sqlite3_column_text(s, i) : sqlite3_column_blob(s, i);
        int32_t len = sqlite3_column_bytes(s, i);
        oom = pack(c, &len, 4);
        if (!oom) oom = pack(c, p, len);
      }
    }
  }
  rc = sqlite3_finalize(s);
  coop_state(c);
  return rc != SQLITE_OK ? rc : oom;
}

/* Asks the file, not the schema as it was when it was last read. */
int coop_schema_has_owner(coop_conn *c, const char *schema, int *has) {
  sqlite3_stmt *s = 0;
  char *sql = sqlite3_mprintf("SELECT 1 FROM \"%w\".coop_owner LIMIT 0", schema);
  int rc;
  if (!sql) return SQLITE_NOMEM;
  rc = sqlite3_prepare_v3(c->db, sql, -1, 0, &s, 0);
  sqlite3_free(sql);
  if (rc == SQLITE_OK) {
    sqlite3_step(s);
    rc = sqlite3_finalize(s);
  }
  *has = rc == SQLITE_OK;
  return rc == SQLITE_ERROR ? SQLITE_OK : rc; /* no such table */
}

const char *coop_error(coop_conn *c) {
  c->code = sqlite3_errcode(c->db);
  c->extended = sqlite3_extended_errcode(c->db);
  c->system_errno = sqlite3_system_errno(c->db);
  return sqlite3_errmsg(c->db);
}
