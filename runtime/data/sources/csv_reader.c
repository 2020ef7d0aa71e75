/* Records of a CSV file, read through one buffer. */
#include "core/alloc.h"
#include "core/threads.h"
#include "data/sources/csv.h"
#include "io/unpack.h"
#include <string.h>

enum {
    CHUNK = 256 << 10,
    END = -1,   /* instead of a byte: the end of the file, */
    FAILED = -2 /* or a stored error */
};

struct mg_csv_reader {
    mg_unpacked *file;
    mg_csv_format format;
    char *path;           /* owned */
    unsigned char *chunk; /* owned: n bytes of the file, of which `at` are consumed */
    size_t n, at;
    int64_t line;                           /* of the next byte, from 1 */
    int64_t quote_line;                     /* where the open quote is; 0: none is open */
    bool plain_stop[256], quoted_stop[256]; /* bytes that end a cell outside and inside quotes */
    mg_csv_record record;
    int cell_room;
    char *text; /* owned: the record's cells, one after another */
    size_t n_text, text_room;
};

/* ---- bytes ---- */

/* Reads the next chunk. Returns its first byte, END or FAILED. */
static int refill(mg_csv_reader *r) {
    r->at = r->n = 0;
    if (mg_interrupt_pending() && mg_interrupt_take()) {
        mg_fail(MG_INTERRUPTED, "interrupted");
        return FAILED;
    }
    if (mg_unpacked_read(r->file, r->chunk, CHUNK, &r->n) != MG_OK) return FAILED;
    return r->n ? r->chunk[0] : END;
}

/* The next byte, without consuming it. */
static inline int peek(mg_csv_reader *r) {
    return r->at < r->n ? r->chunk[r->at] : refill(r);
}

static bool ends_line(int c) {
    return c == '\n' || c == '\r';
}

/* Goes to the next line. `c` is the next byte, CR or LF. */
static mg_status take_line_end(mg_csv_reader *r, int c) {
    r->at++;
    r->line++;
    if (c == '\n') return MG_OK;
    const int next = peek(r);
    if (next == '\n') r->at++;
    return next == FAILED ? mg_error_code() : MG_OK;
}

static mg_status skip_line(mg_csv_reader *r) {
    int c = peek(r);
    for (; c >= 0 && !ends_line(c); c = peek(r)) r->at++;
    if (c == FAILED) return mg_error_code();
    return c == END ? MG_OK : take_line_end(r, c);
}

/* ---- cells ---- */

static mg_status fail_length(const mg_csv_reader *r) {
    if (!r->quote_line)
        return mg_fail(MG_DATA, "csv: %s: line %lld: the record that begins here exceeds %d MiB",
                       r->path, (long long)r->record.line, MG_CSV_RECORD >> 20);
    return mg_fail(MG_DATA,
                   "csv: %s: line %lld: the quote that opens here is not closed within %d MiB",
                   r->path, (long long)r->quote_line, MG_CSV_RECORD >> 20);
}

/* Adds n bytes to the record's text. */
static mg_status add_bytes(mg_csv_reader *r, const void *bytes, size_t n) {
    if (!n) return MG_OK;
    if (r->n_text + n > MG_CSV_RECORD) return fail_length(r);
    if (r->n_text + n > r->text_room) {
        const size_t room = 2 * (r->n_text + n) + 256;
        char *text = mg_realloc(r->text, room);
        if (!text) return MG_OOM;
        r->text = text;
        r->text_room = room;
    }
    memcpy(r->text + r->n_text, bytes, n);
    r->n_text += n;
    return MG_OK;
}

/* Adds the bytes up to the next byte of `stops`. Returns that byte, END or FAILED. */
static int add_until(mg_csv_reader *r, const bool stops[256]) {
    for (;;) {
        const int c = peek(r);
        const size_t from = r->at;
        if (c == END || c == FAILED) return c;
        while (r->at < r->n && !stops[r->chunk[r->at]]) r->at++;
        if (add_bytes(r, r->chunk + from, r->at - from) != MG_OK) return FAILED;
        if (r->at == r->n) continue;
        if (r->chunk[r->at]) return r->chunk[r->at];
        mg_fail(MG_DATA, "csv: %s: line %lld: a zero byte: this is not a text file", r->path,
                (long long)r->line);
        return FAILED;
    }
}

/* The next byte, after spaces if they are ignored. */
static int peek_trimmed(mg_csv_reader *r) {
    int c = peek(r);
    while (r->format.trim && (c == ' ' || c == '\t') && c != r->format.delimiter) {
        r->at++;
        c = peek(r);
    }
    return c;
}

/* Adds a line end that is inside quotes. */
static mg_status add_line_end(mg_csv_reader *r, int c) {
    const size_t from = r->at;
    MG_TRY(add_bytes(r, r->chunk + from, 1));
    MG_TRY(take_line_end(r, c));
    const bool both = c == '\r' && r->at && r->chunk[r->at - 1] == '\n'; /* CRLF */
    return both ? add_bytes(r, "\n", 1) : MG_OK;
}

/* Reads a cell from its opening quote past the closing one. */
static mg_status read_quoted(mg_csv_reader *r) {
    r->quote_line = r->line;
    for (r->at++;;) {
        int c = add_until(r, r->quoted_stop);
        if (c == FAILED) return mg_error_code();
        if (c == END)
            return mg_fail(MG_DATA, "csv: %s: line %lld: the quote that opens here is never closed",
                           r->path, (long long)r->quote_line);
        if (ends_line(c)) {
            MG_TRY(add_line_end(r, c));
            continue;
        }
        r->at++;
        c = peek(r);
        if (c == FAILED) return mg_error_code();
        if (c != (unsigned char)r->format.quote) break;
        MG_TRY(add_bytes(r, r->chunk + r->at, 1)); /* two quotes stand for one */
        r->at++;
    }
    r->quote_line = 0;
    return MG_OK;
}

static void trim_end(mg_csv_reader *r, size_t begin) {
    while (r->n_text > begin && (r->text[r->n_text - 1] == ' ' || r->text[r->n_text - 1] == '\t'))
        r->n_text--;
}

/* Reads a cell and sets *after to the delimiter, line end or END that follows it. */
static mg_status read_cell(mg_csv_reader *r, int *after) {
    const size_t begin = r->n_text;
    *after = peek_trimmed(r);
    const bool quoted = r->format.quote && *after == (unsigned char)r->format.quote;
    if (quoted) {
        MG_TRY(read_quoted(r));
        *after = peek_trimmed(r);
        if (*after >= 0 && !ends_line(*after) && *after != (unsigned char)r->format.delimiter)
            return mg_fail(MG_DATA,
                           "csv: %s: line %lld: text after a closing quote: quotes "
                           "inside of quotes are written twice",
                           r->path, (long long)r->line);
    } else if (*after != FAILED) {
        *after = add_until(r, r->plain_stop);
        if (r->format.trim) trim_end(r, begin);
    }
    return *after == FAILED ? mg_error_code() : add_bytes(r, "", 1);
}

/* Appends a cell to the record; until the end of the record, `bytes` holds the offset of its
 * text. */
static mg_status begin_cell(mg_csv_reader *r) {
    mg_csv_record *e = &r->record;
    if (e->n == MG_CSV_COLUMNS)
        return mg_fail(MG_DATA, "csv: %s: line %lld: more than %d columns", r->path,
                       (long long)e->line, MG_CSV_COLUMNS);
    MG_TRY(mg_reserve((void **)&e->cell, e->n, &r->cell_room, sizeof *e->cell));
    e->cell[e->n++].bytes = r->n_text;
    return MG_OK;
}

static mg_status read_record(mg_csv_reader *r) {
    mg_csv_record *e = &r->record;
    int after;
    e->line = r->line;
    e->n = 0;
    r->n_text = 0;
    for (;;) {
        MG_TRY(begin_cell(r));
        MG_TRY(read_cell(r, &after));
        if (after != (unsigned char)r->format.delimiter) break;
        r->at++;
    }
    if (after != END) MG_TRY(take_line_end(r, after));
    for (int i = 0; i < e->n; i++) { /* `text` is not moved any more */
        const size_t begin = e->cell[i].bytes,
                     end = i + 1 < e->n ? e->cell[i + 1].bytes : r->n_text;
        e->cell[i] = (mg_csv_cell){r->text + begin, end - begin - 1};
    }
    return MG_OK;
}

mg_status mg_csv_reader_next(mg_csv_reader *r, const mg_csv_record **record) {
    *record = NULL;
    for (int c = peek(r);; c = peek(r)) {
        if (c == FAILED) return mg_error_code();
        if (c == END) return MG_OK;
        if (ends_line(c))
            MG_TRY(take_line_end(r, c));
        else if (r->format.comment && c == (unsigned char)r->format.comment)
            MG_TRY(skip_line(r));
        else
            break;
    }
    MG_TRY(read_record(r));
    *record = &r->record;
    return MG_OK;
}

/* ---- opening ---- */

/* Skips the byte order mark of UTF-8, and the lines that are to be skipped. */
static mg_status skip_head(mg_csv_reader *r) {
    if (peek(r) == FAILED) return mg_error_code();
    if (r->n >= 3 && memcmp(r->chunk, "\xef\xbb\xbf", 3) == 0) r->at = 3;
    if (r->n >= 2 && (memcmp(r->chunk, "\xff\xfe", 2) == 0 || memcmp(r->chunk, "\xfe\xff", 2) == 0))
        return mg_fail(MG_DATA, "csv: %s is text in UTF-16: convert it to UTF-8", r->path);
    for (int64_t i = 0; i < r->format.skip; i++) MG_TRY(skip_line(r));
    return MG_OK;
}

static void set_stops(mg_csv_reader *r) {
    r->plain_stop[0] = r->plain_stop['\n'] = r->plain_stop['\r'] = true;
    r->plain_stop[(unsigned char)r->format.delimiter] = true;
    r->quoted_stop[0] = r->quoted_stop['\n'] = r->quoted_stop['\r'] = true;
    r->quoted_stop[(unsigned char)r->format.quote] = true;
}

mg_csv_reader *mg_csv_reader_open(const char *path, const mg_csv_format *format) {
    mg_csv_reader *r = mg_alloc_zero(sizeof *r);
    if (!r) return NULL;
    r->format = *format;
    r->line = 1;
    set_stops(r);
    r->path = mg_strdup(path);
    r->chunk = r->path ? mg_alloc(CHUNK) : NULL;
    r->file = r->chunk ? mg_unpacked_open(path, MG_PACKED_AUTO) : NULL;
    if (r->file && skip_head(r) == MG_OK) return r;
    mg_csv_reader_close(r);
    return NULL;
}

mg_io_state mg_csv_reader_state(const mg_csv_reader *r) {
    return mg_unpacked_state(r->file);
}

mg_status mg_csv_reader_check_unchanged(const mg_csv_reader *r, const mg_io_state *before) {
    return mg_unpacked_check_unchanged(r->file, before);
}

void mg_csv_reader_close(mg_csv_reader *r) {
    if (!r) return;
    mg_unpacked_close(r->file);
    mg_free(r->chunk);
    mg_free(r->path);
    mg_free(r->record.cell);
    mg_free(r->text);
    mg_free(r);
}
