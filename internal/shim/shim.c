//go:build !windows

#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The progress handler is asked after this many virtual machine instructions:
** some tens of microseconds of work, too rare to be measurable. */
#define PROGRESS_INTERVAL 1000

/* What a statement or a savepoint may have to take back, SQLite keeps in memory up
** to this size, and beyond it in a temporary file, at two system calls for each page.
** Its own limit of 64 KB is fifteen pages, fewer than a handful of statements on
** tables with indexes may change. It is taken in one block, so it stays below what
** allocators ask the kernel for each time (128 KB). */
#define SAVEPOINT_MEMORY (120 * 1024)

/* The setting is the whole process's and can only be made before SQLite is first
** used; then it stays as it is. https://sqlite.org/c3ref/c_config_covering_index_scan.html */
void coop_configure(void) { sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, SAVEPOINT_MEMORY); }

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
  sqlite3_result_int(ctx, c->store ? coop_load(&c->store->permit) : 0);
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
  if (c->cancel && coop_load(c->cancel)) return 0;
  if (now_ms() - c->busy_since + c->busy_spent >= c->busy_limit) return 0;
  nanosleep(&t, 0);
  return !(c->cancel && coop_load(c->cancel));
}

/* -1: SQLite has not asked for a wait. */
int64_t coop_busy_waited(const coop_conn *c) { return c->busy_since ? now_ms() - c->busy_since + c->busy_spent : -1; }

void coop_set_busy_limit(coop_conn *c, int64_t ms) { c->busy_limit = ms > 0 && ms <= INT32_MAX ? ms : 0; }

void coop_install_busy_handler(coop_conn *c) { sqlite3_busy_handler(c->db, busy, c); }

/* Takes over a timeout that was set behind our back, which replaced our
** handler. SQLite does not tell 0 from none. */
void coop_adopt_busy_timeout(coop_conn *c) {
  sqlite3_stmt *s = 0;
  if (sqlite3_prepare_v3(c->db, "PRAGMA busy_timeout", -1, 0, &s, 0) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
    int64_t ms = sqlite3_column_int64(s, 0);
    if (ms > 0) coop_set_busy_limit(c, ms);
  }
  sqlite3_finalize(s);
  coop_install_busy_handler(c);
}

/* sqlite3_interrupt ends every statement of a connection and those that start
** before the last of them has stopped. This ends the one whose flag is set.
**
** SQLite asks once more when a statement has ended. To say yes then would make an
** error of one that is done, and committed. */
static int progress(void *p) {
  coop_conn *c = p;
  return c->cancel && coop_load(c->cancel) && (!c->running || sqlite3_stmt_busy(c->running));
}

int coop_step(coop_conn *c, sqlite3_stmt *s) {
  int rc;
  c->running = s;
  rc = sqlite3_step(s);
  c->running = 0;
  return rc;
}

static int64_t changes(coop_conn *c) {
  int64_t raw = sqlite3_changes(c->db);
  if (c->followed && raw == c->raw_changes && sqlite3_total_changes(c->db) == c->raw_total) return c->followed_changes;
  return raw;
}

static int64_t total_changes(coop_conn *c) { return sqlite3_total_changes(c->db) + c->total_offset; }

/* SQLite's own changes() and total_changes(), across connections. */
static void changes_value(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  (void)argc;
  (void)argv;
  sqlite3_result_int64(ctx, changes(sqlite3_user_data(ctx)));
}

static void total_changes_value(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  (void)argc;
  (void)argv;
  sqlite3_result_int64(ctx, total_changes(sqlite3_user_data(ctx)));
}

void coop_counters(coop_conn *c, coop_counts *out) {
  out->rowid = sqlite3_last_insert_rowid(c->db);
  out->changes = changes(c);
  out->total = total_changes(c);
}

/* The caller goes on here who was elsewhere before: what he asks about his last
** write must be answered as it would have been there. */
void coop_resume(coop_conn *c, const coop_counts *counts) {
  sqlite3_set_last_insert_rowid(c->db, counts->rowid);
  c->followed = 1;
  c->followed_changes = counts->changes;
  c->raw_changes = sqlite3_changes(c->db);
  c->raw_total = sqlite3_total_changes(c->db);
  c->total_offset = counts->total - c->raw_total;
}

void coop_follow(coop_conn *c, coop_conn *before) {
  coop_counts counts;
  coop_counters(before, &counts);
  coop_resume(c, &counts);
}

/* Triggers of main run, or do not; those of temp always do.
** https://sqlite.org/c3ref/c_dbconfig_defensive.html#sqlitedbconfigenabletrigger */
int coop_set_triggers(coop_conn *c, int on) { return sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, on, (int *)0); }

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
  coop_set_busy_limit(c, busy_limit);
  c->autocommit = 1;
  c->store = store;
  if (store) __atomic_add_fetch(&store->refs, 1, __ATOMIC_ACQ_REL);
  rc = create_function(c, "coop_context", 1, context_value);
  if (rc == SQLITE_OK) rc = create_function(c, "coop_write_permit", 0, write_permit);
  if (rc == SQLITE_OK) rc = create_function(c, "changes", 0, changes_value);
  if (rc == SQLITE_OK) rc = create_function(c, "total_changes", 0, total_changes_value);
  if (rc == SQLITE_OK) rc = coop_changes_register(c);
  if (rc == SQLITE_OK) rc = sqlite3_set_authorizer(c->db, coop_authorize, c);
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
