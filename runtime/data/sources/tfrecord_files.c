/* Opening, unpacking and reading the files of a data set. */
#include "data/sources/tfrecord_files.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/tfrecord.h"

typedef struct record_file {
    char *path;      /* owned */
    int64_t size;    /* unpacked */
    int64_t changed; /* the time of its last change when the set was opened */
    int64_t first;   /* where it begins in the unpacked file; -1: it is not compressed */
    /* Of a file that is not compressed, guarded by the lock: */
    mg_file *file; /* owned; NULL: closed */
    int readers;   /* threads that read from it now */
    uint64_t used; /* the number of the last opening or reading */
} record_file;

struct mg_record_files {
    pthread_mutex_t lock;
    int n_open;
    uint64_t clock;    /* openings and readings so far */
    mg_file *unpacked; /* owned; NULL: no file is compressed */
    int64_t unpacked_size;
    int n;
    record_file files[];
};

/* ---- descriptors ---- */

/* Closes the file that was read longest ago, if there are too many and one of them is idle. */
static void make_room(mg_record_files *s) {
    record_file *oldest = NULL;
    if (s->n_open < MG_RECORD_FILES_OPEN) return;
    for (int i = 0; i < s->n; i++) {
        record_file *f = &s->files[i];
        if (f->file && !f->readers && (!oldest || f->used < oldest->used)) oldest = f;
    }
    if (!oldest) return;
    mg_io_close(oldest->file);
    oldest->file = NULL;
    s->n_open--;
}

/* Opens a file again, if it is still the one that was there. */
static mg_status reopen(mg_record_files *s, record_file *f) {
    int64_t size, changed;
    make_room(s);
    mg_file *file = mg_io_open(f->path);
    mg_status status = file ? mg_io_size(file, &size) : mg_error_code();
    if (status == MG_OK) status = mg_io_changed(file, &changed);
    if (status == MG_OK && (size != f->size || changed != f->changed))
        status = mg_fail(MG_IO, "%s has changed since the data set was opened", f->path);
    if (status != MG_OK) {
        mg_io_close(file);
        return status;
    }
    f->file = file;
    s->n_open++;
    return MG_OK;
}

/* Takes a file for reading. */
static mg_status take(mg_record_files *s, record_file *f) {
    pthread_mutex_lock(&s->lock);
    const mg_status status = f->file ? MG_OK : reopen(s, f);
    if (status == MG_OK) f->readers++;
    f->used = ++s->clock;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void give_back(mg_record_files *s, record_file *f) {
    pthread_mutex_lock(&s->lock);
    f->readers--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening ---- */

/* How a file that begins with these n bytes is packed. A record begins with a length and its
 * checksum; gzip data with 1f 8b 08; zlib data with two bytes that say "deflate" and are together a
 * multiple of 31. */
static mg_packing packing_of(const unsigned char *head, size_t n) {
    uint64_t length;
    if (n >= MG_TFRECORD_HEAD && mg_tfrecord_length(head, &length)) return MG_PACKED_NONE;
    if (n >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8) return MG_PACKED_GZIP;
    const bool zlib = n >= 2 && (head[0] & 15) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
    return zlib ? MG_PACKED_ZLIB : MG_PACKED_NONE;
}

/* Opens a file for the first time, with its path set; a compressed one is unpacked. */
static mg_status open_first(mg_record_files *s, record_file *f, mg_packing packing) {
    unsigned char head[MG_TFRECORD_HEAD];
    size_t n;
    if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    make_room(s);
    f->first = -1;
    f->file = mg_io_open(f->path);
    if (!f->file) return mg_error_code();
    s->n_open++;
    f->used = ++s->clock;
    MG_TRY(mg_io_size(f->file, &f->size));
    MG_TRY(mg_io_changed(f->file, &f->changed));
    MG_TRY(mg_io_read_at(f->file, head, sizeof head, 0, &n));
    if (packing == MG_PACKED_AUTO) packing = packing_of(head, n);
    if (packing == MG_PACKED_NONE) return MG_OK;
    mg_io_close(f->file);
    f->file = NULL;
    s->n_open--;
    if (!s->unpacked) s->unpacked = mg_io_unnamed();
    if (!s->unpacked) return mg_error_code();
    f->first = s->unpacked_size;
    MG_TRY(mg_unpack_into(f->path, packing, s->unpacked, &f->size));
    s->unpacked_size += f->size;
    return MG_OK;
}

mg_record_files *mg_record_files_open(const char *const *paths, int n, mg_packing packing) {
    size_t bytes;
    mg_record_files *s = NULL;
    if (mg_size_mul((size_t)n, sizeof s->files[0], &bytes) && mg_size_add(bytes, sizeof *s, &bytes))
        s = mg_alloc_zero(bytes);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    for (s->n = 0; s->n < n; s->n++) {
        record_file *f = &s->files[s->n];
        f->path = mg_strdup(paths[s->n]);
        if (f->path && open_first(s, f, packing) == MG_OK) continue;
        s->n++; /* the one that was opened in part */
        mg_record_files_close(s);
        return NULL;
    }
    return s;
}

void mg_record_files_close(mg_record_files *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        mg_io_close(s->files[i].file);
        mg_free(s->files[i].path);
    }
    mg_io_close(s->unpacked);
    pthread_mutex_destroy(&s->lock);
    mg_free(s);
}

/* ---- reading ---- */

int mg_record_files_count(const mg_record_files *s) {
    return s->n;
}

const char *mg_record_files_path(const mg_record_files *s, int file) {
    return s->files[file].path;
}

int64_t mg_record_files_size(const mg_record_files *s, int file) {
    return s->files[file].size;
}

mg_status mg_record_files_read(mg_record_files *s, int file, void *dst, size_t n,
                               int64_t position) {
    record_file *f = &s->files[file];
    mg_file *from = s->unpacked;
    size_t got = 0;
    if (f->first < 0) {
        MG_TRY(take(s, f));
        from = f->file;
    }
    const int64_t at = f->first < 0 ? position : f->first + position;
    mg_status status = mg_io_read_at(from, dst, n, at, &got);
    if (f->first < 0) give_back(s, f);
    if (status == MG_OK && got < n)
        status = mg_fail(MG_IO, "%s has become shorter since the data set was opened", f->path);
    return status;
}
