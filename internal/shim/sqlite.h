/* The part of SQLite's C interface that the shim uses, declared by hand: the
** library itself is linked by mattn/go-sqlite3, whose headers another package
** cannot include. Every name is documented at https://sqlite.org/c3ref. */
#ifndef COOP_SQLITE_H
#define COOP_SQLITE_H

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef struct sqlite3_context sqlite3_context;
typedef struct sqlite3_value sqlite3_value;
typedef struct sqlite3_mutex sqlite3_mutex;

#define SQLITE_OK 0
#define SQLITE_DENY 1 /* of an authorizer */
#define SQLITE_ERROR 1
#define SQLITE_BUSY 5
#define SQLITE_NOMEM 7
#define SQLITE_CONSTRAINT 19
#define SQLITE_MISUSE 21
#define SQLITE_ROW 100
#define SQLITE_DONE 101

#define SQLITE_INTEGER 1
#define SQLITE_FLOAT 2
#define SQLITE_TEXT 3
#define SQLITE_BLOB 4
#define SQLITE_NULL 5

#define SQLITE_UTF8 1
#define SQLITE_DIRECTONLY 0x000080000
#define SQLITE_INNOCUOUS 0x000200000
#define SQLITE_TRANSIENT ((void (*)(void *))-1)
#define SQLITE_STATIC ((void (*)(void *))0)

#define SQLITE_PREPARE_PERSISTENT 0x01

#define SQLITE_CREATE_INDEX 1
#define SQLITE_CREATE_TABLE 2
#define SQLITE_CREATE_TEMP_INDEX 3
#define SQLITE_CREATE_TEMP_TABLE 4
#define SQLITE_CREATE_TEMP_TRIGGER 5
#define SQLITE_CREATE_TEMP_VIEW 6
#define SQLITE_CREATE_TRIGGER 7
#define SQLITE_CREATE_VIEW 8
#define SQLITE_DELETE 9
#define SQLITE_DROP_INDEX 10
#define SQLITE_DROP_TABLE 11
#define SQLITE_DROP_TRIGGER 16
#define SQLITE_DROP_VIEW 17
#define SQLITE_INSERT 18
#define SQLITE_PRAGMA 19
#define SQLITE_SELECT 21
#define SQLITE_TRANSACTION 22
#define SQLITE_UPDATE 23
#define SQLITE_ATTACH 24
#define SQLITE_DETACH 25
#define SQLITE_ALTER_TABLE 26
#define SQLITE_REINDEX 27
#define SQLITE_ANALYZE 28
#define SQLITE_CREATE_VTABLE 29
#define SQLITE_DROP_VTABLE 30
#define SQLITE_SAVEPOINT 32

#define SQLITE_IGNORE 2

#define SQLITE_DBSTATUS_DEFERRED_FKS 10
#define SQLITE_STMTSTATUS_VM_STEP 4
#define SQLITE_STMTSTATUS_REPREPARE 5
#define SQLITE_CONFIG_STMTJRNL_SPILL 26
#define SQLITE_DBCONFIG_ENABLE_TRIGGER 1003
#define SQLITE_FCNTL_DATA_VERSION 35

extern int sqlite3_create_function_v2(sqlite3 *, const char *, int, int, void *,
    void (*)(sqlite3_context *, int, sqlite3_value **),
    void (*)(sqlite3_context *, int, sqlite3_value **),
    void (*)(sqlite3_context *), void (*)(void *));
extern void *sqlite3_user_data(sqlite3_context *);
extern void sqlite3_result_int(sqlite3_context *, int);
extern void sqlite3_result_int64(sqlite3_context *, long long);
extern void sqlite3_result_null(sqlite3_context *);
extern void sqlite3_result_text(sqlite3_context *, const char *, int, void (*)(void *));
extern void sqlite3_result_text64(sqlite3_context *, const char *, unsigned long long, void (*)(void *), unsigned char);
extern void sqlite3_result_value(sqlite3_context *, sqlite3_value *);
extern void sqlite3_result_error(sqlite3_context *, const char *, int);
extern void sqlite3_result_error_code(sqlite3_context *, int);
extern void sqlite3_result_error_nomem(sqlite3_context *);
extern int sqlite3_value_type(sqlite3_value *);
extern int sqlite3_value_int(sqlite3_value *);
extern long long sqlite3_value_int64(sqlite3_value *);
extern double sqlite3_value_double(sqlite3_value *);
extern const unsigned char *sqlite3_value_text(sqlite3_value *);
extern const void *sqlite3_value_blob(sqlite3_value *);
extern int sqlite3_value_bytes(sqlite3_value *);

extern int sqlite3_busy_handler(sqlite3 *, int (*)(void *, int), void *);
extern void sqlite3_progress_handler(sqlite3 *, int, int (*)(void *), void *);
extern int sqlite3_set_authorizer(sqlite3 *,
    int (*)(void *, int, const char *, const char *, const char *, const char *), void *);

extern char *sqlite3_mprintf(const char *, ...);
extern void sqlite3_free(void *);
extern int sqlite3_prepare_v3(sqlite3 *, const char *, int, unsigned int, sqlite3_stmt **, const char **);
extern int sqlite3_step(sqlite3_stmt *);
extern int sqlite3_reset(sqlite3_stmt *);
extern int sqlite3_finalize(sqlite3_stmt *);
extern int sqlite3_clear_bindings(sqlite3_stmt *);
extern int sqlite3_bind_parameter_count(sqlite3_stmt *);
extern int sqlite3_bind_parameter_index(sqlite3_stmt *, const char *);
extern int sqlite3_bind_int64(sqlite3_stmt *, int, long long);
extern int sqlite3_bind_double(sqlite3_stmt *, int, double);
extern int sqlite3_bind_null(sqlite3_stmt *, int);
extern int sqlite3_bind_text64(sqlite3_stmt *, int, const char *, unsigned long long, void (*)(void *), unsigned char);
extern int sqlite3_bind_blob64(sqlite3_stmt *, int, const void *, unsigned long long, void (*)(void *));
extern int sqlite3_column_count(sqlite3_stmt *);
extern int sqlite3_column_type(sqlite3_stmt *, int);
extern long long sqlite3_column_int64(sqlite3_stmt *, int);
extern double sqlite3_column_double(sqlite3_stmt *, int);
extern const unsigned char *sqlite3_column_text(sqlite3_stmt *, int);
extern const void *sqlite3_column_blob(sqlite3_stmt *, int);
extern int sqlite3_column_bytes(sqlite3_stmt *, int);
extern sqlite3_value *sqlite3_column_value(sqlite3_stmt *, int);
extern const char *sqlite3_column_name(sqlite3_stmt *, int);
extern const char *sqlite3_column_decltype(sqlite3_stmt *, int);
extern int sqlite3_stmt_status(sqlite3_stmt *, int, int);
extern int sqlite3_stmt_busy(sqlite3_stmt *);
extern int sqlite3_stmt_readonly(sqlite3_stmt *);
extern int sqlite3_stmt_isexplain(sqlite3_stmt *);

extern sqlite3_mutex *sqlite3_db_mutex(sqlite3 *);
extern void sqlite3_mutex_enter(sqlite3_mutex *);
extern void sqlite3_mutex_leave(sqlite3_mutex *);
extern int sqlite3_get_autocommit(sqlite3 *);
extern int sqlite3_txn_state(sqlite3 *, const char *);
extern long long sqlite3_last_insert_rowid(sqlite3 *);
extern void sqlite3_set_last_insert_rowid(sqlite3 *, long long);
extern int sqlite3_changes(sqlite3 *);
extern int sqlite3_total_changes(sqlite3 *);
extern int sqlite3_errcode(sqlite3 *);
extern int sqlite3_extended_errcode(sqlite3 *);
extern const char *sqlite3_errmsg(sqlite3 *);
extern int sqlite3_system_errno(sqlite3 *);
extern int sqlite3_stricmp(const char *, const char *);
extern int sqlite3_strnicmp(const char *, const char *, int);
extern int sqlite3_file_control(sqlite3 *, const char *, int, void *);
extern int sqlite3_config(int op, ...);
extern int sqlite3_db_config(sqlite3 *, int op, ...);
extern int sqlite3_db_status(sqlite3 *, int, int *, int *, int);
extern int sqlite3_table_column_metadata(sqlite3 *, const char *, const char *, const char *,
    const char **, const char **, int *, int *, int *);

#endif
