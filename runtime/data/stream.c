/* Plain and gzipped files as a stream of bytes.
 *
 * A gzipped file is one or more members. zlib checks sum and length of each when it meets the
 * member's end, so contents are proven only once the end has been read: readers ask for one byte
 * more than they want. */
#include "data/stream.h"
#include "core/alloc.h"
#include "core/io.h"
#include <stdbool.h>
#include <zlib.h>

enum { CHUNK = 64 << 10, MOST_PACKED = 1032 };

struct mg_stream {
    mg_file *file;
    char *path;
    bool zipped, inflating; /* inflating: z needs inflateEnd */
    bool between_members;
    int64_t file_bytes, file_read, offset;
    z_stream z;
    unsigned char in[CHUNK];
};

static void *z_alloc(void *context, unsigned items, unsigned size) {
    (void)context;
    return mg_alloc((size_t)items * size);
}

static void z_release(void *context, void *block) {
    (void)context;
    mg_free(block);
}

/* Where in the file the next packed byte lies. */
static long long place(const mg_stream *s) {
    return (long long)(s->file_read - (int64_t)s->z.avail_in);
}

/* Makes packed bytes available; none at the end of the file. */
static mg_status fill(mg_stream *s) {
    size_t got;
    if (s->z.avail_in > 0) return MG_OK;
    MG_TRY(mg_io_read(s->file, s->in, CHUNK, &got));
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)got;
    s->file_read += (int64_t)got;
    return MG_OK;
}

static mg_status next_member(mg_stream *s) {
    if (s->z.next_in[0] != 0x1f)
        return mg_fail(MG_DATA, "%s: bytes that are not gzip follow the gzip data at byte %lld",
                       s->path, place(s));
    if (inflateReset(&s->z) != Z_OK) return mg_fail(MG_INTERNAL, "%s: inflateReset", s->path);
    s->between_members = false;
    return MG_OK;
}

static mg_status inflate_some(mg_stream *s) {
    switch (inflate(&s->z, Z_NO_FLUSH)) {
    case Z_STREAM_END: s->between_members = true; return MG_OK;
    case Z_OK:
    case Z_BUF_ERROR: return MG_OK;
    case Z_MEM_ERROR: return mg_fail(MG_OOM, "%s: out of memory while unpacking", s->path);
    default:
        return mg_fail(MG_DATA, "%s: damaged gzip data before byte %lld: %s", s->path, place(s),
                       s->z.msg ? s->z.msg : "a dictionary is asked for");
    }
}

static mg_status read_zipped(mg_stream *s, void *dst, size_t n, size_t *got) {
    size_t done = 0;
    while (done < n) {
        MG_TRY(fill(s));
        if (s->z.avail_in == 0) {
            if (s->between_members) break;
            return mg_fail(MG_DATA, "%s: truncated: the file ends at byte %lld inside its gzip data",
                           s->path, place(s));
        }
        if (s->between_members) MG_TRY(next_member(s));
        const size_t room = n - done < 1u << 30 ? n - done : 1u << 30;
        s->z.next_out = (unsigned char *)dst + done;
        s->z.avail_out = (uInt)room;
        MG_TRY(inflate_some(s));
        done += room - s->z.avail_out;
    }
    *got = done;
    return MG_OK;
}

static mg_status begin(mg_stream *s) {
    size_t got;
    MG_TRY(mg_io_size(s->file, &s->file_bytes));
    MG_TRY(mg_io_read(s->file, s->in, 2, &got));
    MG_TRY(mg_io_seek(s->file, 0));
    s->zipped = got == 2 && s->in[0] == 0x1f && s->in[1] == 0x8b;
    if (!s->zipped) return MG_OK;
    s->z.zalloc = z_alloc;
    s->z.zfree = z_release;
    enum { WINDOW = 15, GZIP = 16 };
    if (inflateInit2(&s->z, WINDOW + GZIP) != Z_OK)
        return mg_fail(MG_OOM, "%s: out of memory while unpacking", s->path);
    s->inflating = true;
    return MG_OK;
}

mg_stream *mg_stream_open(const char *path) {
    mg_stream *s = mg_alloc_zero(sizeof *s);
    if (!s) return NULL;
    s->path = mg_strdup(path);
    s->file = s->path ? mg_io_open(path) : NULL;
    if (s->file && begin(s) == MG_OK) return s;
    mg_stream_close(s);
    return NULL;
}

mg_status mg_stream_read(mg_stream *s, void *dst, size_t n, size_t *got) {
    *got = 0;
    MG_TRY(s->zipped ? read_zipped(s, dst, n, got) : mg_io_read(s->file, dst, n, got));
    s->offset += (int64_t)*got;
    return MG_OK;
}

int64_t mg_stream_offset(const mg_stream *s) {
    return s->offset;
}

int64_t mg_stream_most(const mg_stream *s) {
    if (!s->zipped) return s->file_bytes;
    return s->file_bytes < INT64_MAX / MOST_PACKED ? s->file_bytes * MOST_PACKED : INT64_MAX;
}

int mg_stream_is_plain(const mg_stream *s) {
    return !s->zipped;
}

void mg_stream_close(mg_stream *s) {
    if (!s) return;
    if (s->inflating) inflateEnd(&s->z);
    mg_io_close(s->file);
    mg_free(s->path);
    mg_free(s);
}
