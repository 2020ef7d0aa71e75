/* CSV files, the rules of RFC 4180: cells between delimiters, in quotes where they hold delimiters,
 * quotes (doubled) or line ends. Lines end with LF, CRLF or CR; blank lines are ignored; a UTF-8
 * byte order mark and gzip are recognised.
 *
 * Files are read twice, record by record. mg_csv_scan counts the rows and determines the kinds of
 * the columns; then the caller defines the fields, and mg_csv_source reads the cells into arrays of
 * exactly the right size. */
#ifndef MG_DATA_SOURCES_CSV_H
#define MG_DATA_SOURCES_CSV_H

#include "core/io.h"
#include "data/source.h"

enum {
    MG_CSV_RECORD = 16 << 20, /* maximum bytes of a record */
    MG_CSV_COLUMNS = 1 << 20  /* maximum number of columns */
};

typedef struct mg_csv_format {
    char delimiter;
    char quote, comment; /* 0: none. Lines that begin with `comment` are left out */
    bool trim;           /* spaces and tabs around cells are ignored */
    int64_t skip;        /* lines before the first record */
} mg_csv_format;

/* ---- csv_reader.c: records ---- */

typedef struct mg_csv_cell {
    const char *text; /* zero-terminated; contains no other zero byte */
    size_t bytes;
} mg_csv_cell;

typedef struct mg_csv_record {
    int64_t line; /* where it begins, from 1 */
    int n;
    mg_csv_cell *cell;
} mg_csv_record;

typedef struct mg_csv_reader mg_csv_reader;

/* Owned. NULL: MG_IO, MG_OOM, MG_DATA for other encodings of text. */
mg_csv_reader *mg_csv_reader_open(const char *path, const mg_csv_format *format);
/* Reads the next record; *record lives until the next call, and is NULL at the end. MG_DATA with
 * the line: a zero byte, a quote that is never closed, a record that is too long. MG_INTERRUPTED.
 */
mg_status mg_csv_reader_next(mg_csv_reader *r, const mg_csv_record **record);
/* The state of the file when it was opened; and MG_IO if the file has changed since `before`. */
mg_io_state mg_csv_reader_state(const mg_csv_reader *r);
mg_status mg_csv_reader_check_unchanged(const mg_csv_reader *r, const mg_io_state *before);
/* Accepts NULL. */
void mg_csv_reader_close(mg_csv_reader *r);

/* ---- csv_number.c: numbers as in C, independent of the locale ---- */

/* Whether the text is a decimal number ("-1.5e3", "inf"), perhaps between spaces; sets *value to
 * the nearest double. */
bool mg_csv_number(const char *text, double *value);
/* Whether it is a whole number ("-12") that fits. */
bool mg_csv_integer(const char *text, int64_t *value);

/* ---- class_names.c: names of classes, and their ids from 0 ---- */

typedef struct mg_class_names mg_class_names;

/* Empty. Owned. NULL: MG_OOM. */
mg_class_names *mg_class_names_new(void);
/* Sets *id to that of the name, which is added if it is new. MG_OOM. */
mg_status mg_class_names_add(mg_class_names *c, const char *name, int32_t *id);
/* The id of the name; -1 if it is not there. */
int32_t mg_class_names_find(const mg_class_names *c, const char *name);
int32_t mg_class_names_count(const mg_class_names *c);
/* Borrowed. */
const char *mg_class_names_get(const mg_class_names *c, int32_t id);
/* Gives new ids in the order of the names' bytes; maps[old id] is set to the new one. MG_OOM. */
mg_status mg_class_names_sort(mg_class_names *c, int32_t *map);
/* Accepts NULL. */
void mg_class_names_free(mg_class_names *c);

/* ---- csv_scan.c: what the files hold ---- */

/* The kind of all cells of a column; each kind includes the kinds before it. */
typedef enum mg_csv_kind { MG_CSV_INT32, MG_CSV_INT64, MG_CSV_FLOAT, MG_CSV_TEXT } mg_csv_kind;

typedef struct mg_csv_column {
    char *name; /* owned; NULL without a header */
    mg_csv_kind kind;
    int64_t missing; /* cells that mark a missing value */
    int64_t bytes;   /* of all cells */
} mg_csv_column;

typedef enum mg_csv_header { MG_CSV_FIND_HEADER, MG_CSV_NO_HEADER, MG_CSV_HEADER } mg_csv_header;

/* The rows of several files, one after another. */
typedef struct mg_csv_table {
    mg_csv_format format;
    mg_csv_header header;        /* after the scan not MG_CSV_FIND_HEADER */
    const char *const *paths;    /* the caller's, like the texts below */
    const char *const *no_value; /* texts that mark a missing value, such as "" and "NA" */
    int n_paths, n_no_value;
    mg_csv_column *columns; /* owned */
    mg_io_state *states;    /* owned: of each file when it was scanned */
    int n_columns;
    int64_t n_rows;
} mg_csv_table;

/* Sets columns and n_rows. With MG_CSV_FIND_HEADER, the first record is a header unless one of its
 * cells is a number. Each file has its own header, equal to the first file's. Call
 * mg_csv_table_clear also after a failure. MG_DATA with the line: records of different lengths, no
 * rows. */
mg_status mg_csv_scan(mg_csv_table *t);
void mg_csv_table_clear(mg_csv_table *t);
/* Opens a file of the table, checks its header and reads past it. NULL: as mg_csv_reader_open. */
mg_csv_reader *mg_csv_table_open(const mg_csv_table *t, int file);
/* Whether a cell marks a missing value. */
bool mg_csv_is_missing(const mg_csv_table *t, const char *cell);

/* ---- csv.c: the source ---- */

typedef enum mg_csv_as { MG_CSV_NUMBERS, MG_CSV_STRINGS, MG_CSV_CLASSES } mg_csv_as;

/* The default for missing values of a column. */
typedef struct mg_csv_missing {
    bool has_number;
    double number;
    const char *text; /* NULL: none */
} mg_csv_missing;

typedef struct mg_csv_field {
    mg_csv_as as;
    mg_dtype dtype;     /* numbers: float32, float64, int32, int64, uint8 or bool */
    bool matrix;        /* cells have the shape {n_columns}; else n_columns is 1, and {} */
    const int *columns; /* from 0 */
    int n_columns;
    const char *const *classes; /* their names, in the order of their ids; NULL: those found,
                                   sorted */
    int n_classes;
} mg_csv_field;

/* Reads the files. `missing` has an entry for each column. For the first field of classes sets
 * *classes to their names (owned), else to NULL. Owned. NULL: MG_DATA with file, line and column: a
 * cell that is not a number, does not fit, is missing, or is not one of the classes; MG_USAGE,
 * MG_IO, MG_OOM, MG_INTERRUPTED. */
mg_source *mg_csv_source(const mg_csv_table *t, const mg_csv_missing *missing,
                         const mg_csv_field *fields, int n_fields, mg_class_names **classes);

#endif
