/* Making the index: one pass over the files. */
#include "data/sources/tfrecord_index.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include "io/tfrecord.h"
#include <inttypes.h>

/* If records are small, many of their heads are read at a time. */
enum {
    WINDOW = 64 << 10,      /* bytes that are read at once */
    SMALL_RECORD = 4 << 10, /* below this size a window holds many records */
    MOST_RECORDS = 1 << 30, /* an int counts records, and the array doubles */
    FRAME = MG_TFRECORD_HEAD + MG_TFRECORD_TAIL
};

/* Part of a file in memory. */
typedef struct window {
    mg_file_set *files;
    unsigned char *bytes; /* owned */
    size_t room, n;
    int file;
    int64_t start; /* position of bytes[0] in the file */
} window;

/* Sets *bytes to the n bytes at a position, which must be within the file. If they are not in the
 * window, `more` bytes (at least n) are read, or up to the end of the file. */
static mg_status look(window *w, int64_t position, size_t n, size_t more,
                      const unsigned char **bytes) {
    if (position < w->start || position + (int64_t)n > w->start + (int64_t)w->n) {
        const int64_t left = mg_file_set_size(w->files, w->file) - position;
        if ((int64_t)more > left) more = (size_t)left;
        if (more > w->room) {
            mg_free(w->bytes);
            w->n = w->room = 0;
            w->bytes = mg_alloc(more);
            if (!w->bytes) return MG_OOM;
            w->room = more;
        }
        w->n = 0;
        MG_TRY(mg_file_set_read(w->files, w->file, w->bytes, more, position));
        w->n = more;
        w->start = position;
    }
    *bytes = w->bytes + (position - w->start);
    return MG_OK;
}

/* The state of a pass over one file. */
typedef struct pass {
    window *w;
    mg_record_index *index;
    bool skip_bad;
    const char *path;
    int64_t size, position; /* of the file; of the next record */
    int64_t number;         /* of the next record, from 1 */
    int64_t skipped;        /* in this file */
} pass;

static mg_status bad_place(const pass *p, const char *what) {
    return mg_fail(MG_DATA,
                   "%s: record %" PRId64 " at byte %" PRId64
                   ": %s (skip_bad = true leaves out the rest of the file)",
                   p->path, p->number, p->position, what);
}

/* Sets *n to the length of the next record. MG_DATA: it does not match its checksum, or reaches
 * past the end of the file. */
static mg_status read_length(pass *p, uint64_t *n, uint64_t previous) {
    const unsigned char *head;
    const int64_t left = p->size - p->position;
    if (left < FRAME) return bad_place(p, "the file ends within the record: it is truncated");
    const size_t more = p->skip_bad || previous < SMALL_RECORD ? WINDOW : MG_TFRECORD_HEAD;
    MG_TRY(look(p->w, p->position, MG_TFRECORD_HEAD, more, &head));
    if (!mg_tfrecord_length(head, n))
        return bad_place(p, p->number == 1
                                ? "its length does not match its checksum: this is not a "
                                  "TFRecord file, or it is damaged"
                                : "its length does not match its checksum: the file is "
                                  "damaged");
    if (*n > (uint64_t)(left - FRAME))
        return bad_place(p, "the file ends within the record: it is truncated");
    if (*n > INT32_MAX)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: record %" PRId64 " at byte %" PRId64
                       " has %s; a tf.train.Example has less than 2 GiB",
                       p->path, p->number, p->position, MG_SIZE_TEXT(*n));
    return MG_OK;
}

/* Adds the next record, of n bytes, or with skip_bad leaves it out if it is damaged. */
static mg_status add_record(pass *p, size_t n) {
    mg_record_index *x = p->index;
    if (p->skip_bad) {
        const unsigned char *bytes;
        const size_t whole = n + FRAME, more = whole > WINDOW ? whole : WINDOW;
        MG_TRY(look(p->w, p->position, whole, more, &bytes));
        if (!mg_tfrecord_intact(bytes + MG_TFRECORD_HEAD, n)) {
            p->skipped++;
            return MG_OK;
        }
    }
    if (x->n == MOST_RECORDS)
        return mg_fail(MG_UNSUPPORTED, "%s: more than %d records", p->path, MOST_RECORDS);
    MG_TRY(mg_reserve((void **)&x->place, x->n, &x->capacity, sizeof *x->place));
    x->place[x->n++] = (mg_record_place){p->position, (uint32_t)n, p->w->file};
    return MG_OK;
}

/* Goes through one file. */
static mg_status add_file(pass *p) {
    uint64_t n = 0;
    for (; p->position < p->size; p->number++) {
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        const mg_status status = read_length(p, &n, n);
        if (status == MG_DATA && p->skip_bad) break;
        MG_TRY(status);
        MG_TRY(add_record(p, (size_t)n));
        p->position += FRAME + (int64_t)n;
    }
    const int64_t lost = p->size - p->position;
    p->index->skipped += p->skipped;
    p->index->lost_bytes += lost;
    if (p->skipped)
        mg_log("warning", "tfrecord: %s: left out %" PRId64 " damaged records of %" PRId64, p->path,
               p->skipped, p->number - 1);
    if (lost)
        mg_log("warning",
               "tfrecord: %s: left out %" PRId64 " bytes from byte %" PRId64
               " on, where a record is damaged or cut off",
               p->path, lost, p->position);
    return MG_OK;
}

mg_status mg_record_index_build(mg_file_set *files, bool skip_bad, mg_record_index *index) {
    mg_status status = MG_OK;
    window w = {.files = files};
    for (int i = 0; i < mg_file_set_count(files) && status == MG_OK; i++) {
        pass p = {.w = &w,
                  .index = index,
                  .skip_bad = skip_bad,
                  .path = mg_file_set_path(files, i),
                  .size = mg_file_set_size(files, i),
                  .number = 1};
        w.file = i;
        w.n = 0;
        status = add_file(&p);
    }
    mg_free(w.bytes);
    if (status == MG_OK && index->n == 0 && index->skipped + index->lost_bytes > 0)
        status = mg_fail(MG_DATA, "%s%s: no intact record: not a TFRecord file, or damaged",
                         mg_file_set_path(files, 0),
                         mg_file_set_count(files) > 1 ? " and the others" : "");
    if (status == MG_OK && index->n) { /* frees the unused part of the array */
        void *exact = mg_realloc(index->place, (size_t)index->n * sizeof *index->place);
        if (exact) index->place = exact;
    }
    return status;
}
