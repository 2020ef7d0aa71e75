/* Writing zip archives: entries one after another, then the directory.
 *
 * The checksum and the packed size of an entry are known only at its end, so its local header is
 * completed then. An entry that may need more than 32 bits for a size has a zip64 field from the
 * start. */
#include "core/alloc.h"
#include "io/zip_format.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Entries from 3.5 GiB on get a zip64 field, because deflate may make them longer than 4 GiB. */
static const int64_t SIZE64 = (int64_t)0xe0000000;
/* 1980-01-01, 00:00, the first time that the format knows, so that equal entries give equal bytes.
 */
enum { DATE = 1 << 5 | 1, VERSION = 20, VERSION64 = 45, EXTRA64_SIZE = 20, FILE_MODE = 0100644 };

struct mg_zip_writer {
    mg_file *file;         /* owned */
    char *path;            /* owned */
    int64_t base;          /* where the archive begins in the file */
    int64_t at;            /* bytes written since then */
    mg_zip_entry *entries; /* owned, with the names; the last is being written */
    int n, room;
    int64_t left;   /* bytes that mg_zip_write must still give */
    bool deflating; /* z is to be ended */
    z_stream z;
    unsigned char *out; /* owned: ZIP_CHUNK bytes that deflate writes to */
};

/* ---- little-endian numbers: each writes at p and returns the position after it ---- */

static unsigned char *put16(unsigned char *p, uint32_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
    return p + 2;
}

static unsigned char *put32(unsigned char *p, uint32_t v) {
    return put16(put16(p, v & 0xffff), v >> 16);
}

static unsigned char *put64(unsigned char *p, int64_t v) {
    return put32(put32(p, (uint32_t)v), (uint32_t)((uint64_t)v >> 32));
}

/* The 32-bit field of a number that may be in a zip64 field instead. */
static uint32_t low32(int64_t v, bool in_zip64) {
    return in_zip64 ? ZIP_MAX32 : (uint32_t)v;
}

/* ---- entries ---- */

static mg_status write_bytes(mg_zip_writer *w, const void *bytes, size_t n) {
    w->at += (int64_t)n;
    return mg_io_write(w->file, bytes, n);
}

static bool needs64(const mg_zip_entry *e) {
    return e->size >= SIZE64;
}

/* From "version needed" to the packed sizes: the fields that local header and directory share. */
static unsigned char *put_common(unsigned char *p, const mg_zip_entry *e) {
    p = put16(p, needs64(e) ? VERSION64 : VERSION);
    p = put16(p, ZIP_UTF8);
    p = put16(p, e->deflated ? ZIP_METHOD_DEFLATED : ZIP_METHOD_STORED);
    p = put32(p, (uint32_t)DATE << 16); /* time, then date */
    p = put32(p, e->crc);
    p = put32(p, low32(e->packed, needs64(e)));
    p = put32(p, low32(e->size, needs64(e)));
    return put16(p, (uint32_t)strlen(e->name));
}

/* Writes the local header at the current position of the file. */
static mg_status write_local_header(mg_zip_writer *w, const mg_zip_entry *e) {
    unsigned char h[ZIP_LOCAL_SIZE], extra[EXTRA64_SIZE];
    put16(put_common(put32(h, ZIP_LOCAL), e), needs64(e) ? EXTRA64_SIZE : 0);
    put64(put64(put16(put16(extra, ZIP_EXTRA64), EXTRA64_SIZE - 4), e->size), e->packed);
    MG_TRY(mg_io_write(w->file, h, sizeof h));
    MG_TRY(mg_io_write(w->file, e->name, strlen(e->name)));
    return needs64(e) ? mg_io_write(w->file, extra, sizeof extra) : MG_OK;
}

/* Runs deflate until it has taken its input, or with Z_FINISH until its end; writes what it gives.
 */
static mg_status deflate_on(mg_zip_writer *w, int flush) {
    int code;
    do {
        w->z.next_out = w->out;
        w->z.avail_out = ZIP_CHUNK;
        code = deflate(&w->z, flush);
        MG_TRY(write_bytes(w, w->out, ZIP_CHUNK - w->z.avail_out));
    } while (flush == Z_FINISH ? code != Z_STREAM_END : w->z.avail_out == 0);
    return MG_OK;
}

/* Completes the entry being written, if there is one. */
static mg_status finish_entry(mg_zip_writer *w) {
    if (!w->n) return MG_OK;
    mg_zip_entry *e = &w->entries[w->n - 1];
    assert(w->left == 0);
    if (w->deflating) MG_TRY(deflate_on(w, Z_FINISH));
    if (w->deflating) deflateEnd(&w->z);
    w->deflating = false;
    const int64_t header = ZIP_LOCAL_SIZE + (int64_t)strlen(e->name);
    e->packed = w->at - e->offset - header - (needs64(e) ? EXTRA64_SIZE : 0);
    MG_TRY(mg_io_seek(w->file, w->base + e->offset));
    MG_TRY(write_local_header(w, e));
    return mg_io_seek(w->file, w->base + w->at);
}

static mg_status start_deflate(mg_zip_writer *w) {
    if (!w->out) w->out = mg_alloc(ZIP_CHUNK);
    if (!w->out) return MG_OOM;
    w->z = (z_stream){.zalloc = mg_zip_alloc, .zfree = mg_zip_free};
    if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return mg_fail(MG_OOM, "out of memory while writing %s", w->path);
    w->deflating = true;
    return MG_OK;
}

mg_status mg_zip_add(mg_zip_writer *w, const char *name, int64_t size, bool deflated) {
    if (!*name || strlen(name) > ZIP_MAX16)
        return mg_fail(MG_USAGE, "%s: an entry's name must have 1 to %d bytes, not %zu", w->path,
                       ZIP_MAX16, strlen(name));
    MG_TRY(finish_entry(w));
    MG_TRY(mg_reserve((void **)&w->entries, w->n, &w->room, sizeof *w->entries));
    char *copy = mg_strdup(name);
    if (!copy) return MG_OOM;
    mg_zip_entry *e = &w->entries[w->n++];
    *e = (mg_zip_entry){.name = copy, .size = size, .offset = w->at, .deflated = deflated};
    w->left = size;
    if (deflated) MG_TRY(start_deflate(w));
    MG_TRY(write_local_header(w, e));
    w->at += ZIP_LOCAL_SIZE + (int64_t)strlen(name) + (needs64(e) ? EXTRA64_SIZE : 0);
    return MG_OK;
}

mg_status mg_zip_write(mg_zip_writer *w, const void *bytes, size_t n) {
    mg_zip_entry *e = &w->entries[w->n - 1];
    assert(w->n && (int64_t)n <= w->left);
    if (!n) return MG_OK; /* with NULL, crc32_z would restart */
    w->left -= (int64_t)n;
    e->crc = (uint32_t)crc32_z(e->crc, bytes, n);
    if (!e->deflated) return write_bytes(w, bytes, n);
    for (size_t done = 0; done < n; done += ZIP_CHUNK) {
        w->z.next_in = (unsigned char *)(uintptr_t)bytes + done;
        w->z.avail_in = n - done < ZIP_CHUNK ? (uInt)(n - done) : ZIP_CHUNK;
        MG_TRY(deflate_on(w, Z_NO_FLUSH));
    }
    return MG_OK;
}

/* ---- the directory ---- */

/* For qsort. */
static int compare_names(const void *a, const void *b) {
    return strcmp(((const mg_zip_entry *)a)->name, ((const mg_zip_entry *)b)->name);
}

/* Sorts the directory by name and refuses names given twice. */
static mg_status sort_entries(mg_zip_writer *w) {
    qsort(w->entries, (size_t)w->n, sizeof *w->entries, compare_names);
    for (int i = 1; i < w->n; i++)
        if (strcmp(w->entries[i - 1].name, w->entries[i].name) == 0)
            return mg_fail(MG_USAGE, "%s: the name \"%.80s\" is given twice", w->path,
                           w->entries[i].name);
    return MG_OK;
}

/* The directory's record of an entry. */
static mg_status write_record(mg_zip_writer *w, const mg_zip_entry *e) {
    unsigned char r[ZIP_CENTRAL_SIZE], extra[4 + 24], *p = extra + 4;
    const bool far = e->offset >= (int64_t)ZIP_MAX32;
    if (needs64(e)) p = put64(put64(p, e->size), e->packed);
    if (far) p = put64(p, e->offset);
    const uint32_t n = p > extra + 4 ? (uint32_t)(p - extra) : 0;
    put16(put16(extra, ZIP_EXTRA64), n - 4);
    p = put16(put32(r, ZIP_CENTRAL), 3 << 8 | VERSION64); /* made on Unix */
    p = put16(put_common(p, e), n);
    p = put16(put16(put16(p, 0), 0), 0); /* no comment, the first disk, not text */
    p = put32(p, (uint32_t)FILE_MODE << 16);
    put32(p, low32(e->offset, far));
    MG_TRY(write_bytes(w, r, sizeof r));
    MG_TRY(write_bytes(w, e->name, strlen(e->name)));
    return write_bytes(w, extra, n);
}

/* The records that end the file. */
static mg_status write_end(mg_zip_writer *w, int64_t start) {
    unsigned char r64[ZIP_END64_SIZE + ZIP_LOCATOR64_SIZE], r[ZIP_END_SIZE], *p;
    const int64_t end = w->at, size = end - start;
    const bool large =
        w->n >= ZIP_MAX16 || size >= (int64_t)ZIP_MAX32 || start >= (int64_t)ZIP_MAX32;
    if (large) {
        p = put64(put32(r64, ZIP_END64), ZIP_END64_SIZE - 12);
        p = put32(put32(put16(put16(p, 3 << 8 | VERSION64), VERSION64), 0), 0);
        p = put64(put64(put64(put64(p, w->n), w->n), size), start);
        put32(put64(put32(put32(p, ZIP_LOCATOR64), 0), end), 1);
        MG_TRY(write_bytes(w, r64, sizeof r64));
    }
    const uint32_t n = large ? ZIP_MAX16 : (uint32_t)w->n;
    p = put16(put16(put16(put16(put32(r, ZIP_END), 0), 0), n), n);
    put16(put32(put32(p, low32(size, large)), low32(start, large)), 0);
    return write_bytes(w, r, sizeof r);
}

/* ---- archives ---- */

mg_zip_writer *mg_zip_create(const char *path) {
    mg_zip_writer *w = mg_alloc_zero(sizeof *w);
    if (!w) return NULL;
    w->path = mg_strdup(path);
    w->file = w->path ? mg_io_create(path) : NULL;
    if (w->file) return w;
    mg_zip_abandon(w);
    return NULL;
}

/* Copies `bytes` bytes to the start of the archive's file. */
static mg_status copy_before(mg_zip_writer *w, mg_file *before, int64_t bytes) {
    size_t got = 0;
    if (!w->out) w->out = mg_alloc(ZIP_CHUNK);
    if (!w->out) return MG_OOM;
    for (; w->base < bytes; w->base += (int64_t)got) {
        const int64_t left = bytes - w->base;
        MG_TRY(mg_io_read(before, w->out, left < ZIP_CHUNK ? (size_t)left : ZIP_CHUNK, &got));
        if (!got) return mg_fail(MG_IO, "what is to come before %s became shorter", w->path);
        MG_TRY(mg_io_write(w->file, w->out, got));
    }
    return MG_OK;
}

mg_zip_writer *mg_zip_create_behind(const char *path, mg_file *before, int64_t bytes) {
    mg_zip_writer *w = mg_zip_create(path);
    if (!w) return NULL;
    mg_io_make_executable(w->file);
    if (copy_before(w, before, bytes) == MG_OK) return w;
    mg_zip_abandon(w);
    return NULL;
}

/* Frees everything but the file. */
static void free_writer(mg_zip_writer *w) {
    if (w->deflating) deflateEnd(&w->z);
    for (int i = 0; i < w->n; i++) mg_free(w->entries[i].name);
    mg_free(w->entries);
    mg_free(w->out);
    mg_free(w->path);
    mg_free(w);
}

mg_status mg_zip_commit(mg_zip_writer *w) {
    mg_status status = finish_entry(w);
    const int64_t start = w->at;
    if (status == MG_OK && w->n) status = sort_entries(w);
    for (int i = 0; status == MG_OK && i < w->n; i++) status = write_record(w, &w->entries[i]);
    if (status == MG_OK) status = write_end(w, start);
    if (status == MG_OK)
        status = mg_io_commit(w->file);
    else
        mg_io_close(w->file);
    free_writer(w);
    return status;
}

void mg_zip_abandon(mg_zip_writer *w) {
    if (!w) return;
    mg_io_close(w->file);
    free_writer(w);
}
