//go:build !windows

/* Rows: each crossing binds and takes the first step, or takes one or several
** more, and leaves the values where Go reads them. */
#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* How far one crossing reads ahead: so much text, and after so many virtual
** machine instructions no further row. */
#define AHEAD_BYTES 16384
#define AHEAD_STEPS 4000

/* Memory for arguments larger than this is not kept from one query to the next. */
#define KEEP_ARGS 65536

coop_cursor *coop_cursor_new(void) { return calloc(1, sizeof(coop_cursor)); }

void coop_cursor_free(coop_cursor *cur) {
  free(cur->values);
  free(cur->text);
  free(cur->args);
  free(cur);
}

static int make_room(coop_cursor *cur, int64_t values) {
  coop_value *grown;
  if (values <= cur->room) return SQLITE_OK;
  grown = realloc(cur->values, values * sizeof *grown);
  if (!grown) return SQLITE_NOMEM;
  cur->values = grown;
  cur->room = values;
  return SQLITE_OK;
}

/* Reads the row that s stands at. The connection's mutex is held, which is what
** sqlite3_column_value asks for. Texts and blobs stay where SQLite has them. */
static int take_row(coop_cursor *cur, sqlite3_stmt *s) {
  coop_value *v = cur->values + (int64_t)cur->rows * cur->columns;
  int i;
  for (i = 0; i < cur->columns; i++, v++) {
    sqlite3_value *value = sqlite3_column_value(s, i);
    v->type = sqlite3_value_type(value);
    switch (v->type) {
    case SQLITE_INTEGER: v->i = sqlite3_value_int64(value); break;
    case SQLITE_FLOAT: v->f = sqlite3_value_double(value); break;
    case SQLITE_TEXT:
    case SQLITE_BLOB:
      v->p = v->type == SQLITE_TEXT ? (const void *)sqlite3_value_text(value) : sqlite3_value_blob(value);
      v->n = sqlite3_value_bytes(value);
      if (!v->p && (v->n > 0 || v->type == SQLITE_TEXT)) return SQLITE_NOMEM;
      break;
    }
  }
  cur->rows++;
  return SQLITE_OK;
}

/* Copies what the next step would overwrite, if there is room for it. */
static int keep_row(coop_cursor *cur) {
  coop_value *row = cur->values + (int64_t)(cur->rows - 1) * cur->columns, *v;
  int64_t at = cur->text_len;
  for (v = row; v < row + cur->columns; v++) {
    if (v->type == SQLITE_TEXT || v->type == SQLITE_BLOB) at += v->n;
  }
  if (at > AHEAD_BYTES) return 0;
  if (!cur->text && !(cur->text = malloc(AHEAD_BYTES))) return 0;
  for (v = row; v < row + cur->columns; v++) {
    if ((v->type != SQLITE_TEXT && v->type != SQLITE_BLOB) || !v->p) continue;
    memcpy(cur->text + cur->text_len, v->p, v->n);
    v->p = cur->text + cur->text_len;
    cur->text_len += v->n;
  }
  return 1;
}

/* Ends the statement: its error, or that of the commit, which comes here for
** one that stopped at a row. */
static int finish(coop_conn *c, sqlite3_stmt *s) {
  int rc = sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  coop_state(c);
  return rc;
}

/* Binds copies of the arguments, which must outlive the call, and takes the first
** step. SQLITE_ROW: the cursor has the row. SQLITE_DONE, or any error: the
** statement has ended. */
int coop_open(uintptr_t conn, coop_cursor *cur, sqlite3_stmt *s, int flags, coop_arg *args, int n, const char *buf, int64_t len) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  int rc = SQLITE_OK;
  cur->rows = 0;
  if (len > cur->args_room || cur->args_room > KEEP_ARGS) {
    free(cur->args);
    cur->args = malloc(len + 1);
    cur->args_room = cur->args ? len : 0;
    if (!cur->args) return SQLITE_NOMEM;
  }
  if (len > 0) memcpy(cur->args, buf, len);
  sqlite3_mutex_enter(mutex);
  if (!sqlite3_stmt_readonly(s)) coop_changes_new_statement(&c->tracking);
  /* "" where there is nothing yet: NULL would bind NULL. */
  rc = coop_bind(s, args, n, cur->args ? cur->args : "", SQLITE_TRANSIENT);
  if (rc == SQLITE_OK) {
    c->omit = flags & COOP_RUN_UNGUARDED; /* the first step may compile again */
    c->sealed = flags & (COOP_RUN_SEALED | COOP_RUN_TEMP);
    rc = coop_step(c, s);
    c->omit = c->sealed = 0;
    if (!sqlite3_stmt_readonly(s)) c->followed = 0;
    cur->columns = sqlite3_column_count(s);
    cur->compiled = sqlite3_stmt_status(s, SQLITE_STMTSTATUS_REPREPARE, 0);
  }
  if (rc == SQLITE_ROW) {
    int taken = make_room(cur, cur->columns);
    if (taken == SQLITE_OK) taken = take_row(cur, s);
    if (taken != SQLITE_OK) rc = taken;
  }
  if (rc != SQLITE_ROW) {
    int ended = finish(c, s);
    if (ended != SQLITE_OK) rc = ended;
  }
  if (c->denied) {
    if (rc == SQLITE_ROW) finish(c, s);
    c->denied = 0;
    rc = COOP_DENIED;
  }
  coop_state(c);
  sqlite3_mutex_leave(mutex);
  return rc;
}

static uint32_t steps(sqlite3_stmt *s) { return (uint32_t)sqlite3_stmt_status(s, SQLITE_STMTSTATUS_VM_STEP, 0); }

/* Takes up to max rows more. SQLITE_ROW: there may be further ones. SQLITE_DONE,
** or any error: the statement has ended, after the rows that the cursor has. */
int coop_fetch(uintptr_t conn, coop_cursor *cur, sqlite3_stmt *s, int max) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  uint32_t begun;
  int rc, more;
  cur->rows = 0;
  cur->text_len = 0;
  sqlite3_mutex_enter(mutex);
  begun = steps(s);
  rc = make_room(cur, (int64_t)max * cur->columns);
  more = rc == SQLITE_OK;
  while (more) {
    rc = coop_step(c, s);
    if (rc == SQLITE_ROW) {
      int taken = take_row(cur, s);
      if (taken != SQLITE_OK) rc = taken;
    }
    more = rc == SQLITE_ROW && cur->rows < max && steps(s) - begun <= AHEAD_STEPS && keep_row(cur);
  }
  if (rc != SQLITE_ROW) {
    int ended = finish(c, s);
    if (ended != SQLITE_OK) rc = ended;
  }
  sqlite3_mutex_leave(mutex);
  return rc;
}

/* Ends a statement that stands at a row. */
int coop_end(uintptr_t conn, sqlite3_stmt *s) {
  coop_conn *c = (coop_conn *)conn;
  sqlite3_mutex *mutex = sqlite3_db_mutex(c->db);
  int rc;
  sqlite3_mutex_enter(mutex);
  rc = finish(c, s);
  sqlite3_mutex_leave(mutex);
  return rc;
}

void coop_column(sqlite3_stmt *s, int i, const char **name, const char **declared) {
  *name = sqlite3_column_name(s, i);
  *declared = sqlite3_column_decltype(s, i);
}
