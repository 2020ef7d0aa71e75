/* A cache in a file. The first process that calls mg_source_prepare writes it, under a lock file,
 * from a stream that reads the rows in order. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/sources/sources.h"
#include "data/sources/row_file.h"
#include "data/stream.h"
#include "device/device.h"
#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 16, ROWS_PER_THREAD = 4 };

typedef struct cache_source {
    mg_source base;
    mg_source *inner; /* retained */
    char *path;       /* owned */
    pthread_mutex_t preparing;
    mg_row_file *_Atomic file; /* owned; NULL before it is prepared */
} cache_source;

/* ---- making the file ---- */

/* The rows of `inner`, one by one. */
static mg_stream *open_rows(mg_source *inner) {
    mg_device *devices[inner->n_fields];
    const int cores = inner->cheap ? 1 : mg_core_count();
    mg_stream_spec spec = {.source = inner, .threads = cores < MOST_THREADS ? cores : MOST_THREADS};
    spec.depth = (int64_t)spec.threads * ROWS_PER_THREAD;
    if (!(spec.host = mg_device_find("ref:0"))) return NULL;
    for (int k = 0; k < inner->n_fields; k++) devices[k] = spec.host;
    spec.device = devices;
    return mg_stream_new(&spec);
}

static mg_status add_element(mg_row_writer *w, const mg_element *e) {
    mg_cell cell[e->n_fields];
    for (int k = 0; k < e->n_fields; k++)
        cell[k] = e->value[k].cell ? e->value[k].cell[0]
                                   : (mg_cell){e->value[k].shape, e->value[k].buffer->data};
    return mg_row_writer_add(w, cell);
}

static mg_status add_rows(mg_row_writer *w, mg_stream *rows) {
    for (;;) {
        mg_element *e;
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        MG_TRY(mg_stream_next(rows, &e));
        if (!e) return MG_OK;
        const mg_status status = add_element(w, e);
        mg_element_free(e);
        MG_TRY(status);
    }
}

static mg_status write_file(cache_source *s) {
    mg_stream *rows = open_rows(s->inner);
    mg_row_writer *w = rows ? mg_row_writer_new(s->path, &s->base) : NULL;
    mg_status status = w ? add_rows(w, rows) : mg_error_code();
    if (status == MG_OK) status = mg_row_writer_commit(w);
    mg_row_writer_free(w);
    mg_stream_free(rows);
    return status;
}

/* A process that had to wait for the lock finds the file that the other process has made. */
static mg_status write_locked(cache_source *s) {
    MG_TRY(mg_io_check_creatable(s->path));
    const size_t room = strlen(s->path) + sizeof ".lock";
    char *name = mg_alloc(room);
    if (!name) return MG_OOM;
    snprintf(name, room, "%s.lock", s->path);
    mg_file *lock = mg_io_lock(name);
    mg_free(name);
    if (!lock) return mg_error_code();
    const mg_status status = mg_io_exists(s->path) ? MG_OK : write_file(s);
    mg_io_close(lock);
    return status;
}

static mg_status open_or_write(cache_source *s) {
    if (!mg_io_exists(s->path)) MG_TRY(write_locked(s));
    mg_row_file *file = mg_row_file_open(s->path, &s->base);
    atomic_store(&s->file, file);
    return file ? MG_OK : mg_error_code();
}

static mg_status prepare(mg_source *base) {
    cache_source *s = (cache_source *)base;
    pthread_mutex_lock(&s->preparing);
    const mg_status status = atomic_load(&s->file) ? MG_OK : open_or_write(s);
    pthread_mutex_unlock(&s->preparing);
    if (status != MG_OK && status != MG_INTERRUPTED) mg_error_prefix("cache");
    return status;
}

/* ---- the source ---- */

static mg_status read_row(mg_source *base, int64_t row, mg_cell cell[]) {
    mg_row_file *file = atomic_load_explicit(&((cache_source *)base)->file, memory_order_acquire);
    return mg_row_file_read(file, base, row, cell);
}

static void free_source(mg_source *base) {
    cache_source *s = (cache_source *)base;
    mg_row_file_close(atomic_load(&s->file));
    pthread_mutex_destroy(&s->preparing);
    mg_source_release(s->inner);
    mg_free(s->path);
    mg_free(s);
}

static void describe(const mg_source *base, int64_t row, char *text, size_t room) {
    mg_source_describe(((const cache_source *)base)->inner, row, text, room);
}

static const mg_source_api api = {.name = "cache",
                                  .read = read_row,
                                  .prepare = prepare,
                                  .describe = describe,
                                  .free = free_source};

mg_source *mg_cache_file_source(mg_source *inner, const char *path) {
    cache_source *s = mg_source_alloc(&api, sizeof *s, inner->n_fields);
    if (!s) return NULL;
    pthread_mutex_init(&s->preparing, NULL);
    s->inner = mg_source_retain(inner);
    mg_source_copy_fields(&s->base, inner);
    s->base.cheap = true;
    if ((s->path = mg_strdup(path))) return &s->base;
    mg_source_release(&s->base);
    return NULL;
}
