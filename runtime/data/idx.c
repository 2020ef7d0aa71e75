/* IDX files: two zero bytes, a type code, the rank, the sizes (32-bit big-endian), the elements
 * (big-endian).
 *
 * The header may claim any size, so memory is allocated only for bytes that the file can hold. A
 * plain file must have exactly the right size. For a gzipped file the buffer grows as bytes are
 * inflated, to at most FREE_BYTES plus MAX_RATIO times the file's size: real images compress to a
 * fifth, not to a thousandth. */
#include "data/idx.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "io/unpack.h"
#include <string.h>

enum {
    FIRST_ROOM = 1 << 20, /* the first block for gzipped elements */
    FREE_BYTES = 64 << 20,
    MAX_RATIO = 32
};

/* The element types: code in the file, bytes of an element, dtype of the tensor. */
static const struct {
    uint8_t code, size;
    mg_dtype dtype;
} idx_types[] = {{0x08, 1, MG_U8},  {0x09, 1, MG_I32}, {0x0B, 2, MG_I32},
                 {0x0C, 4, MG_I32}, {0x0D, 4, MG_F32}, {0x0E, 8, MG_F64}};
enum { N_TYPES = sizeof idx_types / sizeof idx_types[0] };

typedef struct idx_source {
    mg_unpacked *bytes;
    const char *path;
    int64_t file_size, at; /* at: bytes read so far, unpacked */
    bool gzip;
} idx_source;

/* ---- bytes ---- */

/* Opens the file. Call mg_unpacked_close even if this fails. */
static mg_status source_open(idx_source *s, const char *path) {
    *s = (idx_source){.path = path, .bytes = mg_unpacked_open(path, MG_PACKED_AUTO)};
    if (!s->bytes) return mg_error_code();
    s->file_size = mg_unpacked_file_size(s->bytes);
    s->gzip = mg_unpacked_is_packed(s->bytes);
    return MG_OK;
}

/* Reads up to n bytes; *got < n only at the end of the data. */
static mg_status source_read(idx_source *s, void *dst, size_t n, size_t *got) {
    const mg_status status = mg_unpacked_read(s->bytes, dst, n, got);
    s->at += (int64_t)*got;
    return status;
}

/* Reads n bytes, or fails with MG_DATA: the file ends within `what`. */
static mg_status read_exactly(idx_source *s, void *dst, size_t n, const char *what) {
    size_t got;
    MG_TRY(source_read(s, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the file ends at byte %lld, within %s", s->path, (long long)s->at,
                   what);
}

/* ---- the header ---- */

/* Sets *type, an index into idx_types, and the shape. */
static mg_status read_idx_header(idx_source *s, int *type, mg_shape *shape) {
    unsigned char head[4], sizes[4 * MG_MAX_RANK];
    MG_TRY(read_exactly(s, head, 4, "the magic number"));
    for (*type = 0; *type < N_TYPES && idx_types[*type].code != head[2];) ++*type;
    if (head[0] || head[1] || *type == N_TYPES)
        return mg_fail(MG_DATA, "%s is not an IDX file: its first bytes are %02x %02x %02x %02x",
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

/* Sets *bytes to the size of the elements, or fails with MG_DATA if the file cannot hold that many.
 * The limit for gzipped files counts the bytes of the tensor: narrow integers are widened. */
static mg_status check_size(const idx_source *s, const mg_shape *shape, int type, size_t *bytes) {
    const char *text = MG_SHAPE_TEXT(shape);
    if (mg_shape_check(shape, s->path) != MG_OK)
        return mg_fail(MG_DATA, "%s: shape %s, at byte 4, has too many elements", s->path, text);
    const int64_t count = mg_shape_count(shape), there = s->file_size - s->at;
    const int64_t n = count * idx_types[type].size;
    const int64_t tensor = count * (int64_t)mg_dtype_size(idx_types[type].dtype);
    *bytes = (size_t)n;
    if (!s->gzip && n != there)
        return mg_fail(MG_DATA,
                       "%s: shape %s needs %lld bytes after byte %lld, but the file has %lld",
                       s->path, text, (long long)n, (long long)s->at, (long long)there);
    if (s->gzip && tensor > FREE_BYTES + MAX_RATIO * s->file_size)
        return mg_fail(MG_DATA,
                       "%s: shape %s needs %lld bytes, more than %d MiB and %d times the %lld "
                       "gzipped bytes: refused; if that is right, unpack the file with gunzip",
                       s->path, text, (long long)tensor, FREE_BYTES >> 20, MAX_RATIO,
                       (long long)s->file_size);
    return MG_OK;
}

/* ---- the elements ---- */

/* Reads n bytes into a new block, *block (the caller frees it, also on failure). The block of a
 * gzipped file doubles as bytes arrive, so it is at most twice as large as the data. */
static mg_status read_growing(idx_source *s, size_t n, unsigned char **block) {
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

/* MG_DATA if anything follows the last element.
 *
 * Reading on also verifies the gzip checksum, which comes after the data. */
static mg_status check_end(idx_source *s) {
    unsigned char byte;
    size_t got;
    MG_TRY(source_read(s, &byte, 1, &got));
    if (got == 0) return MG_OK;
    return mg_fail(MG_DATA, "%s: there are bytes after the last element, from byte %lld on",
                   s->path, (long long)s->at - 1);
}

/* n elements from big-endian to little-endian. */
static void swap_bytes(unsigned char *p, size_t element, size_t n) {
    for (size_t i = 0; i < n; i++, p += element)
        for (size_t a = 0, b = element - 1; a < b; a++, b--) {
            const unsigned char kept = p[a];
            p[a] = p[b];
            p[b] = kept;
        }
}

/* Signed bytes or big-endian 16-bit integers to int32. */
static void widen_to_int32(int32_t *dst, const unsigned char *src, size_t element, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] =
            element == 1 ? (int8_t)src[i] : (int16_t)(uint16_t)(src[2 * i] << 8 | src[2 * i + 1]);
}

/* The tensor of the file's big-endian elements; swaps them in place. Owned. */
static mg_tensor *tensor_from_bytes(unsigned char *bytes, int type, const mg_shape *shape) {
    const size_t n = (size_t)mg_shape_count(shape), element = idx_types[type].size;
    const mg_dtype dtype = idx_types[type].dtype;
    if (mg_dtype_size(dtype) == element) {
        swap_bytes(bytes, element, n);
        return mg_tensor_from_host(bytes, dtype, shape, NULL);
    }
    int32_t *wide = mg_alloc(n * sizeof *wide);
    if (!wide) return NULL;
    widen_to_int32(wide, bytes, element, n);
    mg_tensor *t = mg_tensor_from_host(wide, dtype, shape, NULL);
    mg_free(wide);
    return t;
}

/* The file is closed before the tensor is made. */
mg_tensor *mg_idx_load(const char *path) {
    idx_source s;
    int type = 0;
    mg_shape shape = {0};
    size_t bytes = 0;
    unsigned char *block = NULL;
    mg_status status = source_open(&s, path);
    if (status == MG_OK) status = read_idx_header(&s, &type, &shape);
    if (status == MG_OK) status = check_size(&s, &shape, type, &bytes);
    if (status == MG_OK) status = read_growing(&s, bytes, &block);
    if (status == MG_OK) status = check_end(&s);
    mg_unpacked_close(s.bytes);
    mg_tensor *t = status == MG_OK ? tensor_from_bytes(block, type, &shape) : NULL;
    mg_free(block);
    return t;
}
