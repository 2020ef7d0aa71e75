/* The headers of PNG and JPEG files, read without the formats' libraries, for quickly checking many
 * files. */
#include "core/io.h"
#include "data/image.h"
#include <string.h>
#include <zlib.h>

static uint32_t big_endian(const uint8_t *p, int n) {
    uint32_t value = 0;
    for (int i = 0; i < n; i++) value = value << 8 | p[i];
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
            if (frame[5] == 4)
                return mg_fail(MG_UNSUPPORTED, "JPEG: the image is in CMYK colors: save it as RGB");
            return set_size(image, big_endian(frame + 1, 2), big_endian(frame + 3, 2),
                            frame[5] == 1 ? 1 : 3);
        }
        at += marker == 0xff ? 1 : stands_alone(marker) ? 2 : 2 + (int64_t)big_endian(head + 2, 2);
    }
    return mg_fail(MG_DATA, "JPEG: the header is damaged, or there is no image");
}

/* ---- both ---- */

static mg_status probe(mg_file *f, mg_image *image) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    uint8_t head[8];
    int64_t size;
    size_t n;
    MG_TRY(mg_io_size(f, &size));
    MG_TRY(mg_io_read_at(f, head, sizeof head, 0, &n));
    if (size > MG_IMAGE_BYTES)
        return mg_fail(MG_UNSUPPORTED, "the file has more than %d MiB", MG_IMAGE_BYTES >> 20);
    if (n == sizeof png && memcmp(head, png, sizeof png) == 0) return probe_png(f, image);
    if (n >= sizeof jpeg && memcmp(head, jpeg, sizeof jpeg) == 0) return probe_jpeg(f, image);
    return mg_fail(MG_DATA, "neither a PNG nor a JPEG image, by its first bytes");
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
