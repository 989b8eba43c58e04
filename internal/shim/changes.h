/* The functions that the tracking triggers call: changes.c encodes what
** happened, replaced.c finds out about rows that REPLACE has deleted. */
#ifndef COOP_CHANGES_H
#define COOP_CHANGES_H

#include <stdint.h>
#include <string.h>
#include "sqlite.h"

struct coop_conn;

/* A row that a statement may be about to replace: REPLACE deletes it without a
** word to any trigger, so it is kept until the new row is in. */
typedef struct coop_kept {
  struct coop_kept *next;
  int32_t index;                         /* the unique key that collides */
  int32_t table_len, value_len, own_len, key_len, row_len;
  char data[]; /* the table; the new row's value of that unique key, and the
               ** kept row's own, equal for SQL; the kept row's primary key; the row */
} coop_kept;

/* A text that values of SQLite's refer to, and that lives until none does. */
typedef struct coop_text {
  int64_t refs;
  int64_t len;
  char data[];
} coop_text;

/* What a connection remembers for change tracking. */
typedef struct coop_changes {
  char *buf; /* where rows are encoded */
  int64_t len, cap;

  char *differ; /* the old and the new row of coop_differ */
  int64_t old_len, new_len, differ_cap;

  coop_text *metadata; /* of the connection, as JSON; NULL: not made yet */

  int64_t tx;          /* number of the transaction, */
  uint32_t tx_version; /* and the version of the data it began with */
  sqlite3_stmt *newest;

  coop_kept *kept;     /* newest first */
  coop_kept *replaced; /* taken out by coop_replaced */
} coop_changes;

/* An argument as UTF-8. */
typedef struct coop_str {
  const char *p;
  int32_t n;
} coop_str;

static inline coop_str coop_str_of(sqlite3_value *v) {
  coop_str t;
  t.p = (const char *)sqlite3_value_text(v);
  t.n = sqlite3_value_bytes(v);
  return t;
}

static inline int coop_same(const char *p, int32_t n, coop_str t) { return n == t.n && memcmp(p, t.p, n) == 0; }

int coop_changes_register(struct coop_conn *);
/* The functions of replaced.c. */
void coop_keep(sqlite3_context *, int, sqlite3_value **);
void coop_any_kept(sqlite3_context *, int, sqlite3_value **);
void coop_gone(sqlite3_context *, int, sqlite3_value **);
void coop_moved(sqlite3_context *, int, sqlite3_value **);
void coop_replaced(sqlite3_context *, int, sqlite3_value **);

void coop_changes_finalize(coop_changes *);
void coop_changes_free(coop_changes *);
void coop_changes_new_metadata(coop_changes *);
void coop_changes_new_statement(coop_changes *);

#endif
