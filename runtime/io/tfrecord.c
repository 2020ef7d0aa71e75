/* TFRecord files; tfrecord.h says what they are. */
#include "io/tfrecord.h"
#include "core/alloc.h"
#include "core/io.h"
#include <string.h>

/* ---- checksums ---- */

/* CRC-32C (Castagnoli) of the four bits 0 to 15. */
static const uint32_t crc_of_bits[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

static uint32_t crc32c(const unsigned char *bytes, size_t n) {
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ crc_of_bits[crc & 15];
        crc = crc >> 4 ^ crc_of_bits[crc & 15];
    }
    return ~crc;
}

uint32_t mg_tfrecord_checksum(const void *bytes, size_t n) {
    const uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- records ---- */

/* Writes the lowest `size` bytes of v, the lowest first. */
static void put(unsigned char *p, uint64_t v, int size) {
    for (int i = 0; i < size; i++) p[i] = (unsigned char)(v >> 8 * i);
}

void mg_tfrecord_frame(const void *bytes, size_t n, unsigned char head[MG_TFRECORD_HEAD],
                       unsigned char tail[MG_TFRECORD_TAIL]) {
    put(head, n, 8);
    put(head + 8, mg_tfrecord_checksum(head, 8), 4);
    put(tail, mg_tfrecord_checksum(bytes, n), 4);
}

/* The records as they stand in a file, *total bytes. Owned; NULL: MG_OOM. */
static unsigned char *framed(const mg_tfrecord *records, size_t n, size_t *total) {
    *total = 0;
    for (size_t i = 0; i < n; i++) *total += MG_TFRECORD_HEAD + records[i].n + MG_TFRECORD_TAIL;
    unsigned char *all = mg_alloc(*total), *p = all;
    for (size_t i = 0; all && i < n; i++) {
        unsigned char *bytes = p + MG_TFRECORD_HEAD;
        memcpy(bytes, records[i].bytes, records[i].n);
        mg_tfrecord_frame(bytes, records[i].n, p, bytes + records[i].n);
        p = bytes + records[i].n + MG_TFRECORD_TAIL;
    }
    return all;
}

mg_status mg_tfrecord_append(const char *path, int64_t *size, const mg_tfrecord *records,
                             size_t n) {
    size_t total;
    unsigned char *bytes = framed(records, n, &total);
    if (!bytes) return MG_OOM;
    mg_file *f = mg_io_continue(path, *size);
    mg_status status = f ? mg_io_write(f, bytes, total) : mg_error_code();
    if (status == MG_OK) *size += (int64_t)total;
    mg_io_close(f);
    mg_free(bytes);
    return status;
}
