/* TFRecord files; tfrecord.h describes the format. */
#include "io/tfrecord.h"
#include "core/alloc.h"
#include "core/io.h"
#include <string.h>

uint32_t mg_tfrecord_checksum(const void *bytes, size_t n) {
    const uint32_t crc = mg_crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- frames ---- */

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

static uint64_t get(const unsigned char *p, int size) {
    uint64_t v = 0;
    for (int i = 0; i < size; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

bool mg_tfrecord_length(const unsigned char head[MG_TFRECORD_HEAD], uint64_t *n) {
    *n = get(head, 8);
    return get(head + 8, 4) == mg_tfrecord_checksum(head, 8);
}

bool mg_tfrecord_intact(const unsigned char *bytes, size_t n) {
    return get(bytes + n, MG_TFRECORD_TAIL) == mg_tfrecord_checksum(bytes, n);
}

/* ---- appending ---- */

/* The records with their frames, *total bytes. Owned; NULL: MG_OOM. */
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
    const mg_status status = mg_io_append(path, size, bytes, total);
    mg_free(bytes);
    return status;
}
