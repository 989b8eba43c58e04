/* The shim between coopsqlite and SQLite. It lives in C so that the fence asks
** its question once per row without a call into Go, and so that a statement is
** bound, run and reset in one crossing. It keeps no pointer into Go memory
** after a call returns. */
#ifndef COOP_SHIM_H
#define COOP_SHIM_H

#include <stdint.h>
#include "changes.h"
#include "sqlite.h"

/* One ownership of one store, shared by all connections of the owner. */
typedef struct coop_store {
  int32_t refs;
  int32_t permit; /* 1 while the owner runs, 0 once it has closed */
  int64_t fence;  /* this ownership's random number */
  int64_t epoch;
} coop_store;

/* What the authorizer saw while a statement was compiled. */
enum {
  COOP_SEEN_DDL = 1 << 0,       /* changes main's schema */
  COOP_SEEN_WRITE_MAIN = 1 << 1,
  COOP_SEEN_WRITE_TEMP = 1 << 2,
  COOP_SEEN_WRITE_ATTACHED = 1 << 3,
  COOP_SEEN_PRAGMA = 1 << 4,
  COOP_SEEN_PRAGMA_SET = 1 << 5, /* with an argument that may change the connection */
  COOP_SEEN_BUSY_TIMEOUT = 1 << 6,
  COOP_SEEN_ATTACH = 1 << 7,     /* ATTACH or DETACH */
  COOP_SEEN_BEGIN = 1 << 8,      /* BEGIN or SAVEPOINT */
  COOP_SEEN_COMMIT = 1 << 9,     /* COMMIT, END or RELEASE */
  COOP_SEEN_ROLLBACK = 1 << 10,  /* ROLLBACK, also TO a savepoint */
  COOP_SEEN_TEMP_DDL = 1 << 11,
  COOP_SEEN_NO_WRAP = 1 << 12,   /* cannot run inside a transaction */
  COOP_SEEN_VACUUM_INTO = 1 << 13,
  COOP_SEEN_TABLES = 1 << 14,    /* reads or writes the b-tree of a table */
  COOP_SEEN_SAVEPOINT = 1 << 15,
  COOP_SEEN_PRAGMA_READS = 1 << 16, /* not readonly to SQLite, yet only a question */
  COOP_SEEN_ALTER = 1 << 17,     /* ALTER TABLE in main */
  COOP_SEEN_HEADER = 1 << 18,    /* a PRAGMA that writes main's header */
  COOP_SEEN_DROPS_OURS = 1 << 19, /* drops something whose name begins with coop_ */
  COOP_SEEN_OWNER = 1 << 20       /* changes main's coop_owner, or drops it */
};

/* The statements the shim keeps prepared on each connection. */
enum {
  COOP_STMT_BEGIN,
  COOP_STMT_BEGIN_IMMEDIATE,
  COOP_STMT_BEGIN_EXCLUSIVE,
  COOP_STMT_COMMIT,
  COOP_STMT_ROLLBACK,
  COOP_STMT_SAVEPOINT,
  COOP_STMT_RELEASE,
  COOP_STMT_ROLLBACK_TO,
  COOP_STMT_LOCK_FOR_WRITE,
  COOP_STMT_FENCE,
  COOP_STMT_SCHEMA_VERSION,
  COOP_STMT_COUNT
};

/* Results beyond SQLite's own, the first three of coop_begin. */
#define COOP_FENCED (-1)
#define COOP_SUPERSEDED (-2)
#define COOP_NO_OWNER (-3)
#define COOP_DENIED (-4)
#define COOP_MOVED (-5) /* the schema is another one than the caller knows */

/* Bodies of triggers that a statement can be compiled without. Those of the fences:
** it runs in a transaction in which the shim has asked the same questions already,
** and the answers cannot change before that ends. Those that look for rows that
** REPLACE would delete: nothing in it, nor in the schema, replaces a row. */
#define COOP_OMIT_FENCES 1
#define COOP_OMIT_COLLISIONS 2

/* How a statement runs, should it have to be compiled again: as unguarded as it
** is, and without a write to an attached database, which it had not. */
#define COOP_RUN_UNGUARDED COOP_OMIT_FENCES
#define COOP_RUN_SEALED 2
#define COOP_RUN_TEMP 4 /* nor to main */

/* One connection. Go reads and writes the fields marked so directly. */
typedef struct coop_conn {
  sqlite3 *db;
  coop_store *store; /* NULL for a reader */
  int32_t refs;

  int32_t *cancel;    /* Go: flag of the statement that is about to run, or NULL */
  sqlite3_stmt *running; /* what a step is taken of, or NULL */
  int64_t busy_limit; /* Go: milliseconds that a busy wait may take */
  int64_t busy_since;
  int64_t busy_spent; /* Go: milliseconds of it that have gone by before */

  char *metadata; /* pairs of length-prefixed key and value */
  int metadata_len;

  /* What statements are compiled without: COOP_OMIT_… */
  int32_t omit;
  uint64_t authorized; /* Go: calls of the authorizer so far */
  uint32_t seen;       /* Go: what it saw since the last prepare */
  int32_t sealed;      /* Go: COOP_RUN_SEALED, COOP_RUN_TEMP: what may not be written now, */
  int32_t denied;      /* Go: and that was tried */
  char attached[128];  /* Go: the attached schema that would be written; empty: several, or a long name */

  char altered[256];   /* Go: the table of main that would be altered; empty: a long name */

  /* What the functions changes() and total_changes() say is what they would if
  ** all had been written here: see coop_resume. */
  int followed;           /* changes() is, until the next write here, */
  int64_t followed_changes;
  int64_t raw_changes;    /* which these would tell, */
  int64_t raw_total;
  int64_t total_offset;   /* and total_changes() is that much more */

  int64_t rowid;      /* Go: results of the last run */
  int64_t changes;
  int32_t autocommit;
  int64_t version;    /* Go: of the schema, as the last coop_begin found it */

  int32_t code; /* Go: set by coop_error */
  int32_t extended;
  int32_t system_errno;

  char *packed; /* Go: result of coop_pack */
  int64_t packed_len;
  int64_t packed_cap;
  int64_t packed_values; /* Go: how many values it holds */

  coop_changes tracking;
  sqlite3_stmt *stmts[COOP_STMT_COUNT];
} coop_conn;

/* What SQL can ask about the last write. */
typedef struct coop_counts {
  int64_t rowid;
  int64_t changes;
  int64_t total;
} coop_counts;

typedef struct coop_arg {
  int32_t type;
  int32_t index;
  int64_t i; /* the integer; the length of text and blobs */
  double f;
  int64_t offset; /* of text and blobs in the argument buffer; -1: in address */
  uintptr_t address; /* of a pinned value; no pointer, so that Go need not look at every argument */
} coop_arg;

/* One value of a row. */
typedef struct coop_value {
  int32_t type;
  int32_t n; /* bytes of text and blobs */
  union {
    int64_t i;
    double f;
    const void *p;
  };
} coop_value;

/* What the rows of a statement need while they are open. It is used again. */
typedef struct coop_cursor {
  coop_value *values; /* Go: rows times columns of them */
  int64_t room;
  int32_t columns;  /* Go */
  int32_t rows;     /* Go */
  int32_t compiled; /* Go: how often the statement was compiled again */
  char *text;       /* of rows that SQLite has gone past */
  int64_t text_len;
  char *args; /* what is bound */
  int64_t args_room;
} coop_cursor;

typedef struct coop_stmt_info {
  sqlite3_stmt *stmt;
  int32_t tail;
  int32_t params;
  int32_t columns;
  int32_t readonly;
  int32_t explain;
} coop_stmt_info;

/* What another thread may change. */
static inline int32_t coop_load(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

void coop_configure(void);
coop_store *coop_store_new(int64_t fence);
void coop_store_release(coop_store *);

int coop_conn_new(void *db, coop_store *, int64_t busy_limit, coop_conn **);
void coop_conn_finalize(coop_conn *);
void coop_conn_release(coop_conn *);
int64_t coop_busy_waited(const coop_conn *);
void coop_install_busy_handler(coop_conn *);
void coop_adopt_busy_timeout(coop_conn *);
void coop_set_busy_limit(coop_conn *, int64_t ms);
int coop_authorize(void *conn, int action, const char *, const char *, const char *schema, const char *trigger);
int coop_set_metadata(coop_conn *, const char *, int);
void coop_counters(coop_conn *, coop_counts *);
void coop_resume(coop_conn *, const coop_counts *);
void coop_follow(coop_conn *, coop_conn *before);
int coop_set_triggers(coop_conn *, int on);

int coop_step(coop_conn *, sqlite3_stmt *);

int coop_prepare(coop_conn *, const char *sql, int n, int persistent, int omit, coop_stmt_info *);
int coop_explain(coop_conn *, const char *sql, int n);
int coop_run(uintptr_t conn, sqlite3_stmt *, int flags, coop_arg *, int n, const char *buf);
int coop_run_alone(uintptr_t conn, sqlite3_stmt *, int flags, coop_arg *, int n, const char *buf, int64_t version);
int coop_exec(coop_conn *, const char *sql, int n);
int coop_param_index(sqlite3_stmt *, const char *name);
int coop_finalize(sqlite3_stmt *);
int coop_bind(sqlite3_stmt *, const coop_arg *, int n, const char *buf, void (*pinned)(void *));

coop_cursor *coop_cursor_new(void);
void coop_cursor_free(coop_cursor *);
int coop_open(uintptr_t conn, coop_cursor *, sqlite3_stmt *, int flags, coop_arg *, int n, const char *buf, int64_t len);
int coop_fetch(uintptr_t conn, coop_cursor *, sqlite3_stmt *, int max);
int coop_end(uintptr_t conn, sqlite3_stmt *);
void coop_column(sqlite3_stmt *, int i, const char **name, const char **declared);

int coop_begin(coop_conn *, int kind, int check_fence);
int coop_check_fence(coop_conn *);
int coop_run_kept(coop_conn *, int which);
int coop_schema_version(coop_conn *);
void coop_state(coop_conn *);
int coop_txn_state(coop_conn *);
int coop_deferred_violations(coop_conn *);
int coop_pack(coop_conn *, const char *sql, int n);
int coop_schema_has_owner(coop_conn *, const char *schema, int *has);
const char *coop_error(coop_conn *);

#endif
