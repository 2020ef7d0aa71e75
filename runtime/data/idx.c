/* IDX: two zero bytes, the element type, the number of dimensions; their sizes, 4 bytes each; the
 * elements row by row. All numbers are big-endian.
 *
 * The file is not trusted: what the header announces is compared with what the file can hold before
 * memory is taken for it, and where that is only a bound (gzip) memory grows as bytes arrive. */
#include "data/idx.h"
#include "core/alloc.h"
#include "data/stream.h"
#include <stdbool.h>
#include <string.h>

typedef struct idx_type {
    unsigned char code, size;
    mg_dtype dtype; /* of the tensor; wider than the file's for int8 and int16 */
} idx_type;

typedef struct idx {
    const char *path;
    mg_stream *stream;
    const idx_type *type;
    mg_shape shape;
    size_t count, bytes; /* of the elements, as the file has them */
    void *data;          /* owned */
} idx;

enum { GROW_FROM = 1 << 20 };
static const int64_t MOST_BYTES = (int64_t)1 << 36;

static const idx_type types[] = {{0x08, 1, MG_U8},  {0x09, 1, MG_I32}, {0x0b, 2, MG_I32},
                                 {0x0c, 4, MG_I32}, {0x0d, 4, MG_F32}, {0x0e, 8, MG_F64}};

/* ---- header ---- */

static mg_status read_header_bytes(idx *f, unsigned char *dst, size_t n) {
    const long long offset = (long long)mg_stream_offset(f->stream);
    size_t got;
    MG_TRY(mg_stream_read(f->stream, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: truncated IDX header: %zu bytes wanted at offset %lld, %zu there",
                   f->path, n, offset, got);
}

static mg_status read_magic(idx *f, int *rank) {
    unsigned char magic[4];
    MG_TRY(read_header_bytes(f, magic, 4));
    if (magic[0] || magic[1])
        return mg_fail(MG_DATA,
                       "%s: not an IDX file: it begins with bytes %02x %02x at offset 0, not 00 00",
                       f->path, magic[0], magic[1]);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].code == magic[2]) f->type = &types[i];
    if (!f->type)
        return mg_fail(MG_DATA, "%s: unknown IDX element type 0x%02x at offset 2", f->path,
                       magic[2]);
    *rank = magic[3];
    if (*rank >= 1 && *rank <= MG_MAX_RANK) return MG_OK;
    return mg_fail(MG_DATA, "%s: %d IDX dimensions at offset 3: 1 to %d can be read", f->path,
                   *rank, MG_MAX_RANK);
}

static mg_status read_header(idx *f) {
    unsigned char size[4];
    int rank;
    MG_TRY(read_magic(f, &rank));
    f->shape.rank = rank;
    for (int i = 0; i < rank; i++) {
        MG_TRY(read_header_bytes(f, size, 4));
        f->shape.dim[i] =
            (int64_t)((uint32_t)size[0] << 24 | (uint32_t)size[1] << 16 | size[2] << 8 | size[3]);
    }
    f->count = 1;
    bool fits = true;
    for (int i = 0; i < rank; i++)
        fits = fits && mg_size_mul(f->count, (size_t)f->shape.dim[i], &f->count);
    fits = fits && mg_size_mul(f->count, f->type->size, &f->bytes);
    if (fits && f->bytes <= (size_t)MOST_BYTES) return MG_OK;
    return mg_fail(MG_DATA, "%s: the IDX sizes %s at offset 4 are too large to be true", f->path,
                   MG_SHAPE_TEXT(&f->shape));
}

/* ---- elements ---- */

static mg_status truncated(const idx *f, int64_t there) {
    return mg_fail(MG_DATA, "%s: truncated: shape %s needs %zu bytes after offset %d, there are "
                            "%lld%s",
                   f->path, MG_SHAPE_TEXT(&f->shape), f->bytes, 4 + 4 * f->shape.rank,
                   (long long)there, mg_stream_is_plain(f->stream) ? "" : " when unpacked");
}

static mg_status check_size(const idx *f) {
    const int64_t there = mg_stream_most(f->stream) - mg_stream_offset(f->stream);
    if (there < (int64_t)f->bytes) {
        if (mg_stream_is_plain(f->stream)) return truncated(f, there);
        return mg_fail(MG_DATA, "%s: truncated: shape %s needs %zu bytes, more than a gzip file of "
                                "this size can hold",
                       f->path, MG_SHAPE_TEXT(&f->shape), f->bytes);
    }
    if (!mg_stream_is_plain(f->stream) || there == (int64_t)f->bytes) return MG_OK;
    return mg_fail(MG_DATA, "%s: %lld bytes too many: the data of shape %s ends at offset %lld",
                   f->path, (long long)there - (long long)f->bytes, MG_SHAPE_TEXT(&f->shape),
                   (long long)mg_stream_offset(f->stream) + (long long)f->bytes);
}

/* Grows f->data twofold at a time, so that memory follows the bytes that are really there. */
static mg_status read_elements(idx *f) {
    size_t room = mg_stream_is_plain(f->stream) || f->bytes < GROW_FROM ? f->bytes : GROW_FROM;
    for (size_t done = 0;;) {
        size_t got;
        void *grown = mg_realloc(f->data, room);
        if (!grown) return MG_OOM;
        f->data = grown;
        MG_TRY(mg_stream_read(f->stream, (char *)f->data + done, room - done, &got));
        done += got;
        if (done < room) return truncated(f, (int64_t)done);
        if (done == f->bytes) return MG_OK;
        room = room > f->bytes / 2 ? f->bytes : room * 2;
    }
}

/* Reading on proves the sum of a gzipped file, too. */
static mg_status expect_end(idx *f) {
    const long long end = (long long)mg_stream_offset(f->stream);
    unsigned char more;
    size_t got;
    MG_TRY(mg_stream_read(f->stream, &more, 1, &got));
    if (got == 0) return MG_OK;
    return mg_fail(MG_DATA, "%s: bytes too many: the data of shape %s ends at offset %lld", f->path,
                   MG_SHAPE_TEXT(&f->shape), end);
}

/* ---- conversion ---- */

static void swap_bytes(idx *f) {
    uint32_t *w32 = f->data;
    uint64_t *w64 = f->data;
    if (f->type->size == 4)
        for (size_t i = 0; i < f->count; i++) w32[i] = __builtin_bswap32(w32[i]);
    if (f->type->size == 8)
        for (size_t i = 0; i < f->count; i++) w64[i] = __builtin_bswap64(w64[i]);
}

static mg_status widen(idx *f) {
    const unsigned char *src = f->data;
    size_t bytes;
    int32_t *dst = mg_size_mul(f->count, sizeof *dst, &bytes) ? mg_alloc(bytes) : NULL;
    if (!dst) return MG_OOM;
    for (size_t i = 0; i < f->count; i++)
        dst[i] = f->type->size == 1 ? (int8_t)src[i] : (int16_t)(src[2 * i] << 8 | src[2 * i + 1]);
    mg_free(f->data);
    f->data = dst;
    return MG_OK;
}

static mg_status load(idx *f) {
    MG_TRY(read_header(f));
    MG_TRY(check_size(f));
    MG_TRY(read_elements(f));
    MG_TRY(expect_end(f));
    if (f->type->dtype == MG_I32 && f->type->size < 4) return widen(f);
    swap_bytes(f);
    return MG_OK;
}

mg_tensor *mg_idx_load(const char *path, mg_device *device) {
    idx f = {.path = path, .stream = mg_stream_open(path)};
    mg_tensor *t = NULL;
    if (f.stream && load(&f) == MG_OK)
        t = mg_tensor_from_host(f.data, f.type->dtype, &f.shape, device);
    mg_free(f.data);
    mg_stream_close(f.stream);
    return t;
}
