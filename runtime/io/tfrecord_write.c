/* Writing TFRecord files: records go through a buffer, or through zlib into it. */
#include "core/alloc.h"
#include "core/io.h"
#include "io/tfrecord.h"
#include "io/zip_format.h"
#include <string.h>
#include <zlib.h>

enum { ROOM = 64 << 10 };

struct mg_tfrecord_writer {
    mg_file *file;         /* owned */
    unsigned char *buffer; /* owned: ROOM bytes, of which n wait to be written */
    size_t n;
    bool deflating; /* z is to be ended */
    z_stream z;
};

static mg_status start_deflate(mg_tfrecord_writer *w, mg_packing packing) {
    const int bits = packing == MG_PACKED_GZIP ? 15 + 16 : 15, memory = 8;
    w->z.zalloc = mg_zip_alloc;
    w->z.zfree = mg_zip_free;
    if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, memory, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        return mg_fail(MG_OOM, "out of memory: no room to compress a TFRecord file");
    w->deflating = true;
    return MG_OK;
}

mg_tfrecord_writer *mg_tfrecord_writer_open(const char *path, mg_packing packing) {
    mg_tfrecord_writer *w = mg_alloc_zero(sizeof *w);
    if (!w) return NULL;
    const bool packs = packing == MG_PACKED_GZIP || packing == MG_PACKED_ZLIB;
    if ((w->buffer = mg_alloc(ROOM)) && (!packs || start_deflate(w, packing) == MG_OK) &&
        (w->file = mg_io_create(path)))
        return w;
    mg_tfrecord_writer_free(w);
    return NULL;
}

void mg_tfrecord_writer_free(mg_tfrecord_writer *w) {
    if (!w) return;
    if (w->deflating) deflateEnd(&w->z);
    mg_io_close(w->file);
    mg_free(w->buffer);
    mg_free(w);
}

static mg_status flush(mg_tfrecord_writer *w) {
    MG_TRY(mg_io_write(w->file, w->buffer, w->n));
    w->n = 0;
    return MG_OK;
}

/* Compresses what z.next_in holds; `how`: Z_NO_FLUSH or Z_FINISH. */
static mg_status deflate_all(mg_tfrecord_writer *w, int how) {
    for (;;) {
        if (w->n == ROOM) MG_TRY(flush(w));
        w->z.next_out = w->buffer + w->n;
        w->z.avail_out = (uInt)(ROOM - w->n);
        const int code = deflate(&w->z, how);
        w->n = ROOM - w->z.avail_out;
        if (code == Z_STREAM_END || (how == Z_NO_FLUSH && w->z.avail_in == 0 && w->n < ROOM))
            return MG_OK;
    }
}

static mg_status put(mg_tfrecord_writer *w, const void *bytes, size_t n) {
    if (w->deflating) {
        w->z.next_in = (unsigned char *)(uintptr_t)bytes; /* zlib does not change it */
        w->z.avail_in = (uInt)n;
        return deflate_all(w, Z_NO_FLUSH);
    }
    if (n > ROOM - w->n) MG_TRY(flush(w));
    if (n > ROOM) return mg_io_write(w->file, bytes, n);
    if (n) memcpy(w->buffer + w->n, bytes, n);
    w->n += n;
    return MG_OK;
}

mg_status mg_tfrecord_writer_add(mg_tfrecord_writer *w, const void *bytes, size_t n) {
    unsigned char head[MG_TFRECORD_HEAD], tail[MG_TFRECORD_TAIL];
    if (n > INT32_MAX)
        return mg_fail(MG_UNSUPPORTED, "a record of %s: at most 2 GiB are possible",
                       MG_SIZE_TEXT(n));
    mg_tfrecord_frame(bytes, n, head, tail);
    MG_TRY(put(w, head, sizeof head));
    MG_TRY(put(w, bytes, n));
    return put(w, tail, sizeof tail);
}

mg_status mg_tfrecord_writer_finish(mg_tfrecord_writer *w) {
    w->z.avail_in = 0;
    if (w->deflating) MG_TRY(deflate_all(w, Z_FINISH));
    return flush(w);
}

mg_status mg_tfrecord_writer_commit(mg_tfrecord_writer *w) {
    mg_file *file = w->file;
    w->file = NULL;
    return mg_io_commit(file);
}
