/* IDX: two zero bytes, a type code, the rank, the sizes (32 bits, big-endian), the elements.
 *
 * A header may claim anything, so memory is taken only for what the file can hold: a plain file
 * must have exactly the right size; of a gzipped one, whose size says little, the buffer grows with
 * what really inflates. */
#include "data/idx.h"
#include "core/alloc.h"
#include "core/io.h"
#include <string.h>
#include <zlib.h>

enum { CHUNK = 64 << 10, FIRST_ROOM = 1 << 20, MAX_INFLATION = 1040 };

static const struct {
    uint8_t code, size;
    mg_dtype dtype;
} types[] = {{0x08, 1, MG_U8},  {0x09, 1, MG_I32}, {0x0B, 2, MG_I32},
             {0x0C, 4, MG_I32}, {0x0D, 4, MG_F32}, {0x0E, 8, MG_F64}};
enum { N_TYPES = sizeof types / sizeof types[0] };

typedef struct source { /* the bytes of a file, inflated if it is gzipped */
    mg_file *file;
    const char *path;
    int64_t file_size, at; /* `at`: bytes given so far */
    bool gzip, ended;
    z_stream z;
    unsigned char *in; /* owned: what inflate reads from */
} source;

/* ---- bytes ---- */

static void *zlib_alloc(void *context, unsigned n, unsigned size) {
    (void)context;
    return mg_alloc((size_t)n * size);
}

static void zlib_free(void *context, void *block) {
    (void)context;
    mg_free(block);
}

static mg_status source_open(source *s, const char *path) {
    unsigned char head[2];
    size_t n;
    *s = (source){.path = path, .file = mg_io_open(path)};
    if (!s->file) return mg_error_code();
    MG_TRY(mg_io_size(s->file, &s->file_size));
    MG_TRY(mg_io_read(s->file, head, 2, &n));
    MG_TRY(mg_io_seek(s->file, 0));
    if (n < 2 || head[0] != 0x1f || head[1] != 0x8b) return MG_OK;
    s->in = mg_alloc(CHUNK);
    if (!s->in) return MG_OOM;
    s->z.zalloc = zlib_alloc;
    s->z.zfree = zlib_free;
    if (inflateInit2(&s->z, 15 + 16) != Z_OK)
        return mg_fail(MG_OOM, "out of memory while opening %s", path);
    s->gzip = true;
    return MG_OK;
}

static void source_close(source *s) {
    if (s->gzip) inflateEnd(&s->z);
    mg_free(s->in);
    mg_io_close(s->file);
}

static mg_status refill(source *s) {
    size_t n;
    if (s->z.avail_in) return MG_OK;
    MG_TRY(mg_io_read(s->file, s->in, CHUNK, &n));
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)n;
    return MG_OK;
}

/* One step of inflate. At the end of a member another may follow; then the checksum was right. */
static mg_status inflate_some(source *s) {
    MG_TRY(refill(s));
    const bool dry = s->z.avail_in == 0;
    const int code = inflate(&s->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
        MG_TRY(refill(s));
        if (s->z.avail_in)
            inflateReset(&s->z);
        else
            s->ended = true;
        return MG_OK;
    }
    if (code == Z_MEM_ERROR) return mg_fail(MG_OOM, "out of memory while reading %s", s->path);
    if (code == Z_OK || (code == Z_BUF_ERROR && !dry)) return MG_OK;
    if (dry)
        return mg_fail(MG_DATA, "%s: the gzip data ends too early: the file is truncated", s->path);
    return mg_fail(MG_DATA, "%s: the gzip data is damaged near byte %lld: %s", s->path,
                   (long long)s->at, s->z.msg ? s->z.msg : "unknown error");
}

/* *got < n only at the end. */
static mg_status source_read(source *s, void *dst, size_t n, size_t *got) {
    *got = 0;
    mg_status status = MG_OK;
    if (!s->gzip) status = mg_io_read(s->file, dst, n, got);
    while (s->gzip && status == MG_OK && *got < n && !s->ended) {
        const size_t room = n - *got < CHUNK ? n - *got : CHUNK;
        s->z.next_out = (unsigned char *)dst + *got;
        s->z.avail_out = (uInt)room;
        status = inflate_some(s);
        *got += room - s->z.avail_out;
    }
    s->at += (int64_t)*got;
    return status;
}

static mg_status read_exactly(source *s, void *dst, size_t n, const char *what) {
    size_t got;
    MG_TRY(source_read(s, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the file ends at byte %lld, within %s", s->path, (long long)s->at,
                   what);
}

/* ---- the header ---- */

static mg_status read_header(source *s, int *type, mg_shape *shape) {
    unsigned char head[4], sizes[4 * MG_MAX_RANK];
    MG_TRY(read_exactly(s, head, 4, "the magic number"));
    for (*type = 0; *type < N_TYPES && types[*type].code != head[2];) ++*type;
    if (head[0] || head[1] || *type == N_TYPES)
        return mg_fail(MG_DATA, "%s is no IDX file: its first bytes are %02x %02x %02x %02x",
                       s->path, head[0], head[1], head[2], head[3]);
    if (head[3] > MG_MAX_RANK)
        return mg_fail(MG_DATA, "%s: byte 3 says %d axes; at most %d are possible", s->path,
                       head[3], MG_MAX_RANK);
    shape->rank = head[3];
    MG_TRY(read_exactly(s, sizes, 4 * (size_t)head[3], "the sizes"));
    for (int i = 0; i < shape->rank; i++) {
        const unsigned char *p = sizes + 4 * i;
        shape->dim[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
    }
    return MG_OK;
}

/* The bytes that the elements take, compared with what the file can hold. */
static mg_status check_size(const source *s, const mg_shape *shape, size_t element, size_t *bytes) {
    const char *text = MG_SHAPE_TEXT(shape);
    if (mg_shape_check(shape, s->path) != MG_OK)
        return mg_fail(MG_DATA, "%s: shape %s, at byte 4, has too many elements", s->path, text);
    const int64_t n = mg_shape_count(shape) * (int64_t)element, there = s->file_size - s->at;
    *bytes = (size_t)n;
    if (!s->gzip && n != there)
        return mg_fail(MG_DATA, "%s: shape %s needs %lld bytes after byte %lld, the file has %lld",
                       s->path, text, (long long)n, (long long)s->at, (long long)there);
    if (s->gzip && n / MAX_INFLATION > s->file_size)
        return mg_fail(MG_DATA, "%s: shape %s needs %lld bytes; %lld gzipped bytes hold less",
                       s->path, text, (long long)n, (long long)s->file_size);
    return MG_OK;
}

/* ---- the elements ---- */

/* n bytes in a new block, *block; no more than twice what is really there is ever taken. */
static mg_status read_growing(source *s, size_t n, unsigned char **block) {
    size_t room = !s->gzip || n < FIRST_ROOM ? n : FIRST_ROOM, done = 0;
    *block = mg_alloc(room);
    if (!*block) return MG_OOM;
    for (;;) {
        MG_TRY(read_exactly(s, *block + done, room - done, "the elements"));
        done = room;
        if (done == n) return MG_OK;
        room = n - done < done ? n : 2 * done;
        unsigned char *more = mg_realloc(*block, room);
        if (!more) return MG_OOM;
        *block = more;
    }
}

static mg_status check_end(source *s) {
    unsigned char byte;
    size_t got;
    MG_TRY(source_read(s, &byte, 1, &got));
    if (got == 0) return MG_OK;
    return mg_fail(MG_DATA, "%s: there are bytes after the last element, from byte %lld on",
                   s->path, (long long)s->at - 1);
}

static void swap_bytes(unsigned char *p, size_t element, size_t n) {
    for (size_t i = 0; i < n; i++, p += element)
        for (size_t a = 0, b = element - 1; a < b; a++, b--) {
            const unsigned char kept = p[a];
            p[a] = p[b];
            p[b] = kept;
        }
}

static void widen(int32_t *dst, const unsigned char *src, size_t element, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] =
            element == 1 ? (int8_t)src[i] : (int16_t)(uint16_t)(src[2 * i] << 8 | src[2 * i + 1]);
}

/* Big-endian bytes to a tensor. The bytes are changed on the way. */
static mg_tensor *tensor_of(unsigned char *bytes, int type, const mg_shape *shape) {
    const size_t n = (size_t)mg_shape_count(shape), element = types[type].size;
    const mg_dtype dtype = types[type].dtype;
    if (mg_dtype_size(dtype) == element) {
        swap_bytes(bytes, element, n);
        return mg_tensor_from_host(bytes, dtype, shape, NULL);
    }
    int32_t *wide = mg_alloc(n * sizeof *wide);
    if (!wide) return NULL;
    widen(wide, bytes, element, n);
    mg_tensor *t = mg_tensor_from_host(wide, dtype, shape, NULL);
    mg_free(wide);
    return t;
}

mg_tensor *mg_idx_load(const char *path) {
    source s;
    int type = 0;
    mg_shape shape = {0};
    size_t bytes = 0;
    unsigned char *block = NULL;
    mg_status status = source_open(&s, path);
    if (status == MG_OK) status = read_header(&s, &type, &shape);
    if (status == MG_OK) status = check_size(&s, &shape, types[type].size, &bytes);
    if (status == MG_OK) status = read_growing(&s, bytes, &block);
    if (status == MG_OK) status = check_end(&s);
    source_close(&s);
    mg_tensor *t = status == MG_OK ? tensor_of(block, type, &shape) : NULL;
    mg_free(block);
    return t;
}
