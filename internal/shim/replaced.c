//go:build !windows

#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* REPLACE deletes the rows that are in its way without a word to any trigger.
** The rows that may be are kept here from before a write until after it. */

/* One statement can leave rows behind that are never replaced (ON CONFLICT DO
** NOTHING, an upsert). The rows of so many per key of a table are kept: one
** for each depth at which triggers write the same table again. */
#define KEPT_PER_KEY 16

static const char *kept_value(const coop_kept *k) { return k->data + k->table_len; }
static const char *kept_own(const coop_kept *k) { return kept_value(k) + k->value_len; }
static const char *kept_key(const coop_kept *k) { return kept_own(k) + k->own_len; }
static const char *kept_row(const coop_kept *k) { return kept_key(k) + k->key_len; }

static coop_kept *new_kept(int32_t index, coop_str table, coop_str value, coop_str own, coop_str key, coop_str row) {
  coop_kept *k = malloc(sizeof *k + (size_t)table.n + value.n + own.n + key.n + row.n);
  char *p;
  if (!k) return 0;
  k->next = 0;
  k->index = index;
  k->table_len = table.n;
  k->value_len = value.n;
  k->own_len = own.n;
  k->key_len = key.n;
  k->row_len = row.n;
  p = k->data;
  memcpy(p, table.p, table.n), p += table.n;
  memcpy(p, value.p, value.n), p += value.n;
  memcpy(p, own.p, own.n), p += own.n;
  memcpy(p, key.p, key.n), p += key.n;
  memcpy(p, row.p, row.n);
  return k;
}

static void drop(coop_kept **at) {
  coop_kept *k = *at;
  *at = k->next;
  free(k);
}

/* coop_keep(table, index, value, own, key, row): before the write, row is in
** the way of the new one, since its own value of the table's unique key equals
** the new one's. */
void coop_keep(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  coop_str table = coop_str_of(argv[0]), value = coop_str_of(argv[2]), own = coop_str_of(argv[3]);
  coop_str key = coop_str_of(argv[4]), row = coop_str_of(argv[5]);
  int32_t index = sqlite3_value_int(argv[1]);
  coop_kept *k, **at;
  int others = 0;
  (void)argc;
  if (index < 0) return;
  if (!table.p || !value.p || !own.p || !key.p || !row.p || !(k = new_kept(index, table, value, own, key, row))) {
    sqlite3_result_error_nomem(ctx);
    return;
  }
  for (at = &s->kept; *at;) {
    coop_kept *o = *at;
    if (o->index == index && coop_same(o->data, o->table_len, table) &&
        (coop_same(kept_value(o), o->value_len, value) || ++others >= KEPT_PER_KEY)) drop(at);
    else at = &o->next;
  }
  k->next = s->kept;
  s->kept = k;
}

/* coop_kept(): whether any row is kept, so that the rest costs nothing. */
void coop_any_kept(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  (void)argc;
  (void)argv;
  sqlite3_result_int(ctx, ((coop_conn *)sqlite3_user_data(ctx))->tracking.kept != 0);
}

static void forget(coop_changes *s, coop_str table, coop_str key) {
  coop_kept **at;
  for (at = &s->kept; *at;) {
    coop_kept *k = *at;
    if (coop_same(k->data, k->table_len, table) && coop_same(kept_key(k), k->key_len, key)) drop(at);
    else at = &k->next;
  }
}

/* coop_gone(table, key): the row was deleted in the ordinary way. Returns the
** key. */
void coop_gone(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  (void)argc;
  if (s->kept) forget(s, coop_str_of(argv[0]), coop_str_of(argv[1]));
  sqlite3_result_value(ctx, argv[1]);
}

/* coop_moved(table, oldkey, key, row, value, …): the row was updated before it
** could be replaced; the values are those of its unique keys in order. */
void coop_moved(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  coop_str table, old, key, row, value, own;
  coop_kept **at;
  if (argc < 4) return;
  table = coop_str_of(argv[0]), old = coop_str_of(argv[1]), key = coop_str_of(argv[2]), row = coop_str_of(argv[3]);
  for (at = &s->kept; *at;) {
    coop_kept *k = *at, *fresh;
    if (!coop_same(k->data, k->table_len, table) || !coop_same(kept_key(k), k->key_len, old)) {
      at = &k->next;
      continue;
    }
    value.p = kept_value(k), value.n = k->value_len;
    own.p = kept_own(k), own.n = k->own_len;
    if (k->index >= argc - 4 || !coop_same(own.p, own.n, coop_str_of(argv[4 + k->index]))) {
      drop(at); /* out of the way */
      continue;
    }
    fresh = new_kept(k->index, table, value, own, key, row);
    if (!fresh) {
      sqlite3_result_error_nomem(ctx);
      return;
    }
    fresh->next = k->next;
    *at = fresh;
    free(k);
    at = &fresh->next;
  }
}

/* coop_replaced(table, itself, value, …): after the write, whether a row other
** than itself has made way for the one that now has these values of the unique
** keys. It is what coop_replaced('key') and coop_replaced('row') then return,
** and the next call looks for another. */
void coop_replaced(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  coop_str table = {0, 0};
  coop_kept **at = &s->kept, *k;
  if (argc > 0) table = coop_str_of(argv[0]);
  if (argc < 2) {
    k = s->replaced;
    if (k && coop_same("key", 3, table)) sqlite3_result_text64(ctx, kept_key(k), k->key_len, SQLITE_TRANSIENT, SQLITE_UTF8);
    if (k && coop_same("row", 3, table)) sqlite3_result_text64(ctx, kept_row(k), k->row_len, SQLITE_TRANSIENT, SQLITE_UTF8);
    return;
  }
  for (; *at; at = &k->next) {
    coop_str key;
    k = *at;
    key.p = kept_key(k), key.n = k->key_len;
    if (!coop_same(k->data, k->table_len, table) || coop_same(key.p, key.n, coop_str_of(argv[1]))) continue;
    if (k->index >= argc - 2 || !coop_same(kept_value(k), k->value_len, coop_str_of(argv[2 + k->index]))) continue;
    *at = k->next;
    free(s->replaced);
    s->replaced = k;
    forget(s, table, key); /* it may have been in the way of another key too */
    sqlite3_result_int(ctx, 1);
    return;
  }
  sqlite3_result_int(ctx, 0);
}

void coop_changes_new_statement(coop_changes *s) {
  while (s->kept) drop(&s->kept);
  free(s->replaced);
  s->replaced = 0;
}

