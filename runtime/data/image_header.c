/* The headers of image files, read without the formats' libraries: the kind of a file, and its
 * size, for quickly checking many files. */
#include "core/io.h"
#include "data/image.h"
#include <string.h>
#include <zlib.h>

static uint32_t big_endian(const uint8_t *p, int n) {
    uint32_t value = 0;
    for (int i = 0; i < n; i++) value = value << 8 | p[i];
    return value;
}

static uint32_t little_endian(const uint8_t *p, int n) {
    uint32_t value = 0;
    while (n-- > 0) value = value << 8 | p[n];
    return value;
}

/* Reads n bytes at a position, or fails with MG_DATA. */
static mg_status read_exactly(mg_file *f, uint8_t *dst, size_t n, int64_t position) {
    size_t got;
    MG_TRY(mg_io_read_at(f, dst, n, position, &got));
    return got == n ? MG_OK : mg_fail(MG_DATA, "the file ends within the header");
}

static mg_status set_size(mg_image *image, uint32_t height, uint32_t width, int channels) {
    if (!height || !width || height > MG_IMAGE_SIDE || width > MG_IMAGE_SIDE)
        return mg_fail(MG_DATA, "the header says %u x %u pixels", height, width);
    *image = (mg_image){.height = (int)height, .width = (int)width, .channels = channels};
    return MG_OK;
}

/* ---- PNG: the first chunk, with its checksum ---- */

enum { PNG_HEAD = 33 };

static mg_status probe_png(mg_file *f, mg_image *image) {
    uint8_t head[PNG_HEAD];
    const uint8_t *chunk = head + 12; /* "IHDR", width, height, depth, color type, ... */
    MG_TRY(read_exactly(f, head, sizeof head, 0));
    if (big_endian(head + 8, 4) != 13 || memcmp(chunk, "IHDR", 4) != 0 ||
        crc32(0, chunk, 17) != big_endian(head + 29, 4))
        return mg_fail(MG_DATA, "PNG: the header is damaged");
    const int color = chunk[13];
    const int channels = color == 0 ? 1 : color == 4 || color == 6 ? 4 : 3;
    return set_size(image, big_endian(chunk + 8, 4), big_endian(chunk + 4, 4), channels);
}

/* ---- JPEG: segments up to the one that begins the image ---- */

enum { MOST_SEGMENTS = 4096 };

static bool starts_frame(int marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Markers that no length follows: fill bytes, TEM and restarts. */
static bool stands_alone(int marker) {
    return marker == 0xff || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7);
}

static mg_status probe_jpeg(mg_file *f, mg_image *image) {
    int64_t at = 2;
    for (int i = 0; i < MOST_SEGMENTS; i++) {
        uint8_t head[4], frame[6];
        MG_TRY(read_exactly(f, head, 4, at));
        const int marker = head[1];
        if (head[0] != 0xff || marker == 0xd9 || marker == 0xda) break;
        if (starts_frame(marker)) {
            MG_TRY(read_exactly(f, frame, 6, at + 4));
            return set_size(image, big_endian(frame + 1, 2), big_endian(frame + 3, 2),
                            frame[5] == 1 ? 1 : 3);
        }
        at += marker == 0xff ? 1 : stands_alone(marker) ? 2 : 2 + (int64_t)big_endian(head + 2, 2);
    }
    return mg_fail(MG_DATA, "JPEG: the header is damaged, or there is no image");
}

/* ---- BMP: the sizes in the second header, whose own size tells its form ---- */

enum { BMP_FILE = 14, BMP_CORE = 12 };

static bool is_bmp_header(uint32_t size) {
    static const uint32_t sizes[] = {BMP_CORE, 40, 52, 56, 64, 108, 124};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] == size) return true;
    return false;
}

static mg_status probe_bmp(mg_file *f, mg_image *image) {
    uint8_t head[BMP_FILE + BMP_CORE];
    const uint8_t *info = head + BMP_FILE;
    MG_TRY(read_exactly(f, head, sizeof head, 0));
    if (little_endian(info, 4) == BMP_CORE)
        return set_size(image, little_endian(info + 6, 2), little_endian(info + 4, 2), 3);
    const uint32_t height = little_endian(info + 8, 4); /* negative: the first row is the top */
    return set_size(image, height >> 31 ? -height : height, little_endian(info + 4, 4), 3);
}

/* ---- GIF ---- */

static mg_status probe_gif(mg_file *f, mg_image *image) {
    uint8_t head[10]; /* "GIF89a", width, height */
    MG_TRY(read_exactly(f, head, sizeof head, 0));
    return set_size(image, little_endian(head + 8, 2), little_endian(head + 6, 2), 3);
}

/* ---- WebP: the first chunk, whose name tells its form ---- */

static mg_status probe_webp(mg_file *f, mg_image *image) {
    uint8_t head[30]; /* "RIFF", size, "WEBP", name and size of the chunk, its first 10 bytes */
    const uint8_t *chunk = head + 20;
    MG_TRY(read_exactly(f, head, sizeof head, 0));
    if (memcmp(head + 12, "VP8X", 4) == 0)
        return set_size(image, little_endian(chunk + 7, 3) + 1, little_endian(chunk + 4, 3) + 1,
                        chunk[0] & 0x10 ? 4 : 3);
    if (memcmp(head + 12, "VP8L", 4) == 0 && chunk[0] == 0x2f) {
        const uint32_t bits = little_endian(chunk + 1, 4);
        return set_size(image, (bits >> 14 & 0x3fff) + 1, (bits & 0x3fff) + 1,
                        bits >> 28 & 1 ? 4 : 3);
    }
    if (memcmp(head + 12, "VP8 ", 4) == 0 && memcmp(chunk + 3, "\x9d\x01\x2a", 3) == 0)
        return set_size(image, little_endian(chunk + 8, 2) & 0x3fff,
                        little_endian(chunk + 6, 2) & 0x3fff, 3);
    return mg_fail(MG_DATA, "WebP: the header is damaged");
}

/* ---- all ---- */

mg_image_kind mg_image_kind_of(const uint8_t *head, size_t n) {
    static const struct {
        size_t n;
        const char *bytes;
        mg_image_kind kind;
    } begins[] = {{8, "\x89PNG\r\n\x1a\n", MG_PNG},
                  {3, "\xff\xd8\xff", MG_JPEG},
                  {6, "GIF87a", MG_GIF},
                  {6, "GIF89a", MG_GIF}};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (n >= begins[i].n && memcmp(head, begins[i].bytes, begins[i].n) == 0)
            return begins[i].kind;
    if (n >= 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WEBP", 4) == 0) return MG_WEBP;
    if (n >= MG_IMAGE_HEAD && memcmp(head, "BM", 2) == 0 &&
        is_bmp_header(little_endian(head + BMP_FILE, 4)))
        return MG_BMP;
    mg_fail(MG_DATA, "not a PNG, JPEG, BMP, GIF or WebP image, by its first bytes");
    return MG_N_IMAGE_KINDS;
}

static mg_status probe(mg_file *f, mg_image *image) {
    typedef mg_status probe_function(mg_file * f, mg_image * image);
    static probe_function *const probes[] = {[MG_PNG] = probe_png,
                                             [MG_JPEG] = probe_jpeg,
                                             [MG_BMP] = probe_bmp,
                                             [MG_GIF] = probe_gif,
                                             [MG_WEBP] = probe_webp};
    uint8_t head[MG_IMAGE_HEAD];
    int64_t size;
    size_t n;
    MG_TRY(mg_io_size(f, &size));
    MG_TRY(mg_io_read_at(f, head, sizeof head, 0, &n));
    if (size > MG_IMAGE_BYTES)
        return mg_fail(MG_UNSUPPORTED, "the file has more than %d MiB", MG_IMAGE_BYTES >> 20);
    const mg_image_kind kind = mg_image_kind_of(head, n);
    return kind == MG_N_IMAGE_KINDS ? MG_DATA : probes[kind](f, image);
}

mg_status mg_image_probe(const char *path, mg_image *image) {
    *image = (mg_image){0};
    mg_file *f = mg_io_open(path);
    if (!f) return mg_error_code();
    const mg_status status = probe(f, image);
    if (status == MG_DATA || status == MG_UNSUPPORTED) mg_error_prefix(path);
    mg_io_close(f);
    return status;
}
