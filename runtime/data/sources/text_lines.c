/* Lines of text: the start of each line is kept in memory, 8 bytes per line; the text stays in the
 * files. */
#include "data/sources/sources.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/file_set.h"
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

typedef struct lines_source {
    mg_source base;
    mg_file_set *files; /* owned, like all pointers here */
    int64_t
        *begin; /* start of each line in its file; the lines of a file are followed by its size */
    int64_t n_begin, room;
    int64_t skip;   /* lines left out at the beginning of each file */
    int64_t *first; /* per file its first entry of `begin`, and at the end the number of entries */
} lines_source;

/* ---- finding the lines ---- */

static mg_status add_begin(lines_source *s, int64_t position) {
    if (s->n_begin == s->room) {
        const int64_t room = 2 * s->room + 1024;
        int64_t *begin = mg_realloc(s->begin, (size_t)room * sizeof *begin);
        if (!begin) return MG_OOM;
        s->begin = begin;
        s->room = room;
    }
    s->begin[s->n_begin++] = position;
    return MG_OK;
}

/* A file that is being scanned. */
typedef struct scan {
    lines_source *s;
    int file;
    int64_t size, skip; /* skip: lines that are still to be skipped */
    char *chunk;        /* owned */
} scan;

/* Called with the position after each line end, and with the position of the first line. */
static mg_status start_line(scan *c, int64_t position) {
    if (c->skip > 0) return c->skip--, MG_OK;
    return position < c->size ? add_begin(c->s, position) : MG_OK;
}

static mg_status scan_chunk(scan *c, size_t n, int64_t position) {
    const char *end = c->chunk + n, *p = c->chunk;
    if (position == 0) {
        const bool mark = n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0;
        MG_TRY(start_line(c, mark ? 3 : 0));
    }
    while ((p = memchr(p, '\n', (size_t)(end - p)))) {
        p++;
        MG_TRY(start_line(c, position + (p - c->chunk)));
    }
    return MG_OK;
}

/* Checks the lengths of the lines found in the file; the first one is entry `first`. */
static mg_status check_lengths(const scan *c, int64_t first, int64_t skipped) {
    const int64_t *begin = c->s->begin;
    for (int64_t i = first; i + 1 < c->s->n_begin; i++)
        if (begin[i + 1] - begin[i] > MG_TEXT_LINE)
            return mg_fail(MG_DATA, "text_lines: %s: line %lld has more than %d MiB",
                           mg_file_set_path(c->s->files, c->file),
                           (long long)(i - first + skipped + 1), MG_TEXT_LINE >> 20);
    return MG_OK;
}

static mg_status scan_file(lines_source *s, int file, int64_t skip, char *chunk) {
    scan c = {s, file, mg_file_set_size(s->files, file), skip, chunk};
    const int64_t first = s->first[file] = s->n_begin;
    for (int64_t at = 0; at < c.size; at += CHUNK) {
        const size_t n = c.size - at < CHUNK ? (size_t)(c.size - at) : CHUNK;
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        MG_TRY(mg_file_set_read(s->files, file, chunk, n, at));
        MG_TRY(scan_chunk(&c, n, at));
    }
    MG_TRY(add_begin(s, c.size));
    return check_lengths(&c, first, skip);
}

static mg_status find_lines(lines_source *s, const char *const *paths, int n, int64_t skip) {
    mg_status status = MG_OK;
    s->files = mg_file_set_open(paths, n, MG_PACKED_AUTO, NULL);
    s->first = s->files ? mg_alloc(((size_t)n + 1) * sizeof *s->first) : NULL;
    char *chunk = s->first ? mg_alloc(CHUNK) : NULL;
    if (!chunk) return mg_error_code();
    for (int i = 0; i < n && status == MG_OK; i++) status = scan_file(s, i, skip, chunk);
    mg_free(chunk);
    MG_TRY(status);
    s->first[n] = s->n_begin;
    s->base.n_rows = s->n_begin - n; /* without the entries for the sizes of files */
    if (s->base.n_rows) return MG_OK;
    return mg_fail(MG_DATA, "text_lines: there are no lines in %s%s", paths[0],
                   n > 1 ? " and the other files" : "");
}

/* ---- the source ---- */

/* The file that has a row: the last file whose first row is not after it. Each earlier file has one
 * more entry than lines. */
static int file_of(const lines_source *s, int64_t row) {
    int lo = 0, hi = mg_file_set_count(s->files) - 1;
    while (lo < hi) {
        const int middle = lo + (hi - lo + 1) / 2;
        if (s->first[middle] - middle <= row)
            lo = middle;
        else
            hi = middle - 1;
    }
    return lo;
}

static mg_status lines_read(mg_source *base, int64_t row, mg_cell cell[]) {
    lines_source *s = (lines_source *)base;
    const int file = file_of(s, row);
    const int64_t begin = s->begin[row + file];
    size_t n = (size_t)(s->begin[row + file + 1] - begin);
    char *text = cell->data = mg_alloc(n);
    if (!text) return MG_OOM;
    const mg_status status = mg_file_set_read(s->files, file, text, n, begin);
    if (status != MG_OK) {
        mg_error_prefix("text_lines");
        return status;
    }
    if (text[n - 1] == '\n') { /* a line with its end is never empty */
        n--;
        if (n && text[n - 1] == '\r') n--;
    }
    cell->shape = MG_SHAPE((int64_t)n);
    return MG_OK;
}

static void lines_describe(const mg_source *base, int64_t row, char *text, size_t room) {
    const lines_source *s = (const lines_source *)base;
    const int file = file_of(s, row);
    snprintf(text, room, "%s: line %lld", mg_file_set_path(s->files, file),
             (long long)(row + file - s->first[file] + s->skip + 1));
}

static void lines_free(mg_source *base) {
    lines_source *s = (lines_source *)base;
    mg_file_set_close(s->files);
    mg_free(s->begin);
    mg_free(s->first);
    mg_free(s);
}

static const mg_source_api lines_api = {
    .name = "text_lines", .read = lines_read, .describe = lines_describe, .free = lines_free};

mg_source *mg_text_lines_source(const char *const *paths, int n, int64_t skip) {
    lines_source *s = mg_source_alloc(&lines_api, sizeof *s, 1);
    if (!s) return NULL;
    s->base.field[0] = (mg_field){.dtype = MG_U8, .shape = MG_SHAPE(-1), .text = true};
    s->skip = skip;
    if (find_lines(s, paths, n, skip) == MG_OK) return &s->base;
    mg_source_name_error("text_lines");
    mg_source_release(&s->base);
    return NULL;
}
