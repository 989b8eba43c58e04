//go:build !windows

#define _POSIX_C_SOURCE 200809L
#include "shim.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Buffers larger than this are not kept from one row to the next. */
#define KEEP_BUFFER (1 << 20)

static int grow(coop_changes *s, int64_t n) {
  int64_t cap = (s->len + n) * 2;
  char *p;
  if (s->len + n <= s->cap) return SQLITE_OK;
  p = realloc(s->buf, cap);
  if (!p) return SQLITE_NOMEM;
  s->buf = p;
  s->cap = cap;
  return SQLITE_OK;
}

static int put(coop_changes *s, const char *p, int64_t n) {
  if (grow(s, n)) return SQLITE_NOMEM;
  if (n) memcpy(s->buf + s->len, p, n);
  s->len += n;
  return SQLITE_OK;
}

static int put_int(coop_changes *s, int64_t v) {
  char text[24], *p = text + sizeof text;
  uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  do *--p = '0' + u % 10; while (u /= 10);
  if (v < 0) *--p = '-';
  return put(s, p, text + sizeof text - p);
}

/* A number with few decimals, as most are, without the work of a general
** conversion. The quotient of two integers that a double holds exactly is the
** double nearest to it, so these digits read back as v. Returns their number,
** or 0. */
static int short_real(char *text, double v) {
  static const double scales[] = {1e1, 1e2, 1e3, 1e4};
  char digits[24], *p = digits + sizeof digits;
  size_t i;
  for (i = 0; i < sizeof scales / sizeof *scales; i++) {
    double scaled = v * scales[i];
    int64_t whole;
    int decimals = (int)i + 1;
    uint64_t u;
    if (!(fabs(scaled) < 1e15)) return 0;
    whole = (int64_t)scaled;
    if ((double)whole != scaled || (double)whole / scales[i] != v || (whole == 0 && signbit(v))) continue;
    u = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    for (; decimals > 0; decimals--, u /= 10) *--p = '0' + u % 10;
    *--p = '.';
    do *--p = '0' + u % 10; while (u /= 10);
    if (whole < 0) *--p = '-';
    memcpy(text, p, digits + sizeof digits - p);
    return (int)(digits + sizeof digits - p);
  }
  return 0;
}

/* The shortest of 15 and 17 digits that reads back as the same number, and
** always a mark by which it is known for a real. JSON has no infinity; a number
** that is too large is read as one, by SQLite too. */
static int put_real(coop_changes *s, double v) {
  char text[40];
  int n, i, mark = 0;
  if (isnan(v)) return put(s, "null", 4);
  if (isinf(v)) return v > 0 ? put(s, "9e999", 5) : put(s, "-9e999", 6);
  n = short_real(text, v);
  if (n) return put(s, text, n);
  n = snprintf(text, sizeof text, "%.15g", v);
  if (strtod(text, 0) != v) n = snprintf(text, sizeof text, "%.17g", v);
  for (i = 0; i < n; i++) {
    if (text[i] == 'e') mark = 1;
    else if (text[i] != '-' && text[i] != '+' && (text[i] < '0' || text[i] > '9')) {
      text[i] = '.'; /* whatever the locale writes */
      mark = 1;
    }
  }
  if (!mark) {
    text[n++] = '.';
    text[n++] = '0';
  }
  return put(s, text, n);
}

static const char hex_digits[] = "0123456789abcdef";

/* {"kind":"hex"}: bytes that JSON text cannot hold. */
static int put_bytes(coop_changes *s, const char *kind, const unsigned char *p, int64_t n) {
  int64_t i;
  char *out;
  if (put(s, "{\"", 2) || put(s, kind, 4) || put(s, "\":\"", 3) || grow(s, 2 * n)) return SQLITE_NOMEM;
  out = s->buf + s->len;
  for (i = 0; i < n; i++) {
    *out++ = hex_digits[p[i] >> 4];
    *out++ = hex_digits[p[i] & 15];
  }
  s->len += 2 * n;
  return put(s, "\"}", 2);
}

/* The length of the UTF-8 character of several bytes at p; 0 if it is none. */
static int utf8(const unsigned char *p, const unsigned char *end) {
  int n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2, i;
  if (p[0] < 0xc2 || p[0] > 0xf4 || end - p < n) return 0;
  for (i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
  }
  if (p[0] == 0xe0 && p[1] < 0xa0) return 0; /* overlong */
  if (p[0] == 0xed && p[1] > 0x9f) return 0; /* a surrogate */
  if (p[0] == 0xf0 && p[1] < 0x90) return 0; /* overlong */
  if (p[0] == 0xf4 && p[1] > 0x8f) return 0; /* beyond U+10FFFF */
  return n;
}

/* A JSON string. Text that is not UTF-8 cannot be one: it becomes an object of
** its bytes, or, where only a string may stand, loses them. */
static int put_text(coop_changes *s, const unsigned char *text, int64_t n, int only_string) {
  const unsigned char *p = text, *end = text + n, *plain = text;
  int64_t start = s->len;
  if (put(s, "\"", 1)) return SQLITE_NOMEM;
  while (p < end) {
    if (*p >= 0x80) {
      int more = utf8(p, end);
      if (!more && !only_string) {
        s->len = start;
        return put_bytes(s, "text", text, n);
      }
      if (more) {
        p += more;
        continue;
      }
      if (put(s, (const char *)plain, p - plain) || put(s, "\\ufffd", 6)) return SQLITE_NOMEM;
      plain = ++p;
    } else if (*p < 0x20 || *p == '"' || *p == '\\') {
      char escape[6] = {'\\', 'u', '0', '0', hex_digits[*p >> 4], hex_digits[*p & 15]};
      int len = 6;
      if (*p == '"' || *p == '\\') escape[1] = *p, len = 2;
      else if (*p == '\n') escape[1] = 'n', len = 2;
      else if (*p == '\t') escape[1] = 't', len = 2;
      if (put(s, (const char *)plain, p - plain) || put(s, escape, len)) return SQLITE_NOMEM;
      plain = ++p;
    } else {
      p++;
    }
  }
  if (put(s, (const char *)plain, p - plain)) return SQLITE_NOMEM;
  return put(s, "\"", 1);
}

static int put_value(coop_changes *s, sqlite3_value *v) {
  switch (sqlite3_value_type(v)) {
  case SQLITE_INTEGER: return put_int(s, sqlite3_value_int64(v));
  case SQLITE_FLOAT: return put_real(s, sqlite3_value_double(v));
  case SQLITE_TEXT: {
    const unsigned char *p = sqlite3_value_text(v);
    return p ? put_text(s, p, sqlite3_value_bytes(v), 0) : SQLITE_NOMEM;
  }
  case SQLITE_BLOB: {
    const unsigned char *p = sqlite3_value_blob(v);
    int n = sqlite3_value_bytes(v);
    return p || n == 0 ? put_bytes(s, "blob", p, n) : SQLITE_NOMEM;
  }
  }
  return put(s, "null", 4);
}

static void result(sqlite3_context *ctx, const char *p, int64_t n) {
  sqlite3_result_text64(ctx, p, n, SQLITE_TRANSIENT, SQLITE_UTF8);
}

/* coop_row(template, value, …): the template with each ? replaced by a value in
** JSON. The template's own text holds no other question mark. */
static void encode_row(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  const char *p, *end;
  int i = 1, rc = SQLITE_OK;
  s->len = 0;
  p = argc > 0 ? (const char *)sqlite3_value_text(argv[0]) : 0;
  if (!p) return;
  end = p + sqlite3_value_bytes(argv[0]);
  while (rc == SQLITE_OK && p < end) {
    const char *mark = memchr(p, '?', end - p);
    rc = put(s, p, (mark ? mark : end) - p);
    if (!mark || rc != SQLITE_OK) break;
    rc = i < argc ? put_value(s, argv[i++]) : SQLITE_ERROR;
    p = mark + 1;
  }
  if (rc == SQLITE_OK && i < argc) rc = SQLITE_ERROR;
  if (rc == SQLITE_NOMEM) sqlite3_result_error_nomem(ctx);
  else if (rc != SQLITE_OK) sqlite3_result_error(ctx, "coop_row: as many values as question marks", -1);
  else result(ctx, s->buf, s->len);
  if (s->cap > KEEP_BUFFER) {
    free(s->buf);
    s->buf = 0;
    s->cap = 0;
  }
}

/* coop_differ(old, new): whether they do, to the last byte: SQL's comparison
** takes 1 for 1.0. coop_differ('old') and coop_differ('new') then return them. */
static void differ(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_changes *s = &((coop_conn *)sqlite3_user_data(ctx))->tracking;
  coop_str a = {0, 0}, b = {0, 0};
  if (argc > 0) a = coop_str_of(argv[0]);
  if (argc == 1) {
    if (coop_same("old", 3, a)) result(ctx, s->differ, s->old_len);
    if (coop_same("new", 3, a)) result(ctx, s->differ + s->old_len, s->new_len);
    return;
  }
  if (argc > 1) b = coop_str_of(argv[1]);
  if (!a.p || !b.p) {
    sqlite3_result_error_nomem(ctx);
    return;
  }
  sqlite3_result_int(ctx, !coop_same(a.p, a.n, b));
  if ((int64_t)a.n + b.n > s->differ_cap || s->differ_cap > KEEP_BUFFER) {
    free(s->differ);
    s->differ_cap = 2 * ((int64_t)a.n + b.n);
    s->differ = malloc(s->differ_cap);
    if (!s->differ) {
      s->differ_cap = s->old_len = s->new_len = 0;
      sqlite3_result_error_nomem(ctx);
      return;
    }
  }
  s->old_len = a.n;
  s->new_len = b.n;
  memcpy(s->differ, a.p, a.n);
  memcpy(s->differ + a.n, b.p, b.n);
}

static void result_time(sqlite3_context *ctx) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  sqlite3_result_int64(ctx, (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000);
}

/* A transaction has the number of its first change. The version of the data
** moves with every commit, whoever makes it; after a rollback it does not, but
** then the same number is free again. */
static void result_tx(sqlite3_context *ctx, coop_conn *c) {
  coop_changes *s = &c->tracking;
  uint32_t version = 0;
  int rc = sqlite3_file_control(c->db, "main", SQLITE_FCNTL_DATA_VERSION, &version);
  if (rc == SQLITE_OK && (s->tx == 0 || version != s->tx_version)) {
    if (!s->newest)
      rc = sqlite3_prepare_v3(c->db, "SELECT max(seq) FROM main.coop_changes", -1, SQLITE_PREPARE_PERSISTENT, &s->newest, 0);
    if (rc == SQLITE_OK) {
      if (sqlite3_step(s->newest) == SQLITE_ROW) s->tx = sqlite3_column_int64(s->newest, 0) + 1;
      rc = sqlite3_reset(s->newest);
    }
    s->tx_version = version;
  }
  if (rc == SQLITE_OK) {
    sqlite3_result_int64(ctx, s->tx);
  } else {
    s->tx = 0;
    sqlite3_result_error_code(ctx, rc);
  }
}

static int make_metadata(coop_conn *c) {
  coop_changes *s = &c->tracking;
  int at = 0, rc;
  s->len = 0;
  rc = put(s, "{", 1);
  while (rc == SQLITE_OK && at < c->metadata_len) {
    int32_t klen, vlen;
    memcpy(&klen, c->metadata + at, 4);
    memcpy(&vlen, c->metadata + at + 4, 4);
    if (at > 0) rc = put(s, ",", 1);
    at += 8;
    if (rc == SQLITE_OK) rc = put_text(s, (const unsigned char *)c->metadata + at, klen, 1);
    if (rc == SQLITE_OK) rc = put(s, ":", 1);
    if (rc == SQLITE_OK) rc = put_text(s, (const unsigned char *)c->metadata + at + klen, vlen, 0);
    at += klen + vlen;
  }
  if (rc == SQLITE_OK) rc = put(s, "}", 1);
  if (rc != SQLITE_OK) return rc;
  s->metadata = malloc(sizeof *s->metadata + s->len);
  if (!s->metadata) return SQLITE_NOMEM;
  s->metadata->refs = 1;
  s->metadata->len = s->len;
  memcpy(s->metadata->data, s->buf, s->len);
  return SQLITE_OK;
}

static void release_text(void *data) {
  coop_text *t = (coop_text *)((char *)data - offsetof(coop_text, data));
  if (--t->refs == 0) free(t);
}

static void result_metadata(sqlite3_context *ctx, coop_conn *c) {
  coop_text *t;
  if (c->metadata_len == 0) return;
  if (!c->tracking.metadata && make_metadata(c) != SQLITE_OK) {
    sqlite3_result_error_nomem(ctx);
    return;
  }
  /* Not copied for every change, but a statement whose rows are still being
  ** read may outlive the metadata it ran with. */
  t = c->tracking.metadata;
  t->refs++;
  sqlite3_result_text64(ctx, t->data, t->len, release_text, SQLITE_UTF8);
}

/* coop_change(what): the circumstances of a change. */
static void change(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
  coop_conn *c = sqlite3_user_data(ctx);
  const char *what = (const char *)sqlite3_value_text(argv[0]);
  (void)argc;
  if (!what) return;
  if (strcmp(what, "time") == 0) result_time(ctx);
  else if (strcmp(what, "tx") == 0) result_tx(ctx, c);
  else if (strcmp(what, "epoch") == 0 && c->store) sqlite3_result_int64(ctx, __atomic_load_n(&c->store->epoch, __ATOMIC_ACQUIRE));
  else if (strcmp(what, "metadata") == 0) result_metadata(ctx, c);
}

static void release_function(void *p) { coop_conn_release(p); }

int coop_changes_register(coop_conn *c) {
  static const struct {
    const char *name;
    int argc;
    void (*f)(sqlite3_context *, int, sqlite3_value **);
  } functions[] = {
      {"coop_row", -1, encode_row},      {"coop_change", 1, change},  {"coop_differ", -1, differ},    {"coop_keep", 6, coop_keep},
      {"coop_kept", 0, coop_any_kept}, {"coop_gone", 2, coop_gone}, {"coop_moved", -1, coop_moved}, {"coop_replaced", -1, coop_replaced},
  };
  size_t i;
  int rc = SQLITE_OK;
  for (i = 0; rc == SQLITE_OK && i < sizeof functions / sizeof *functions; i++) {
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_ACQ_REL); /* SQLite drops it even when it fails */
    rc = sqlite3_create_function_v2(c->db, functions[i].name, functions[i].argc, SQLITE_UTF8 | SQLITE_INNOCUOUS, c,
                                    functions[i].f, 0, 0, release_function);
  }
  return rc;
}

void coop_changes_new_metadata(coop_changes *s) {
  if (s->metadata) release_text(s->metadata->data);
  s->metadata = 0;
}

void coop_changes_finalize(coop_changes *s) {
  sqlite3_finalize(s->newest);
  s->newest = 0;
}

void coop_changes_free(coop_changes *s) {
  coop_changes_new_statement(s);
  coop_changes_new_metadata(s);
  free(s->buf);
  free(s->differ);
}
