/* What the files of the zip reader and writer share: numbers of the format (PKWARE's APPNOTE
 * 6.3.10), an open archive, and zlib's memory. */
#ifndef MG_IO_ZIP_FORMAT_H
#define MG_IO_ZIP_FORMAT_H

#include "io/zip.h"
#include <stdint.h>
#include <zlib.h>

/* Signatures, sizes of the fixed parts, and values. A 32-bit field of ZIP_MAX32, or a 16-bit one of
 * ZIP_MAX16, says that the number is in a zip64 record. */
enum {
    ZIP_LOCAL = 0x04034b50,
    ZIP_CENTRAL = 0x02014b50,
    ZIP_END = 0x06054b50,
    ZIP_END64 = 0x06064b50,
    ZIP_LOCATOR64 = 0x07064b50,
    ZIP_LOCAL_SIZE = 30,
    ZIP_CENTRAL_SIZE = 46,
    ZIP_END_SIZE = 22,
    ZIP_END64_SIZE = 56,
    ZIP_LOCATOR64_SIZE = 20,
    ZIP_EXTRA64 = 1, /* the id of the extra field with 64-bit sizes */
    ZIP_ENCRYPTED = 1,
    ZIP_STREAMED = 8,
    ZIP_UTF8 = 0x800,
    ZIP_METHOD_STORED = 0,
    ZIP_METHOD_DEFLATED = 8,
    ZIP_MAX16 = 0xffff,
    ZIP_CHUNK = 64 << 10 /* bytes that zlib reads or writes at once */
};
#define ZIP_MAX32 0xffffffffu

struct mg_zip {
    mg_file *file;
    bool owns_file;
    char *path; /* owned: for messages */
    int64_t size;
    int64_t directory;     /* its first byte: entries lie before it */
    mg_zip_entry *entries; /* owned, with the names */
    size_t n;
    /* the entry being read */
    const mg_zip_entry *entry;
    int64_t data;              /* where its data begins in the file */
    int64_t left, packed_left; /* bytes of its contents and of its data in the file */
    uint32_t crc;
    bool inflating; /* z is to be ended */
    z_stream z;
    unsigned char *in; /* owned: ZIP_CHUNK bytes that inflate reads from */
};

/* zip_directory.c: fills size, directory and the entries of an archive, whose file and path are
 * set. */
mg_status mg_zip_read_directory(mg_zip *z);
/* Reads n bytes at a position, which the caller has compared with the file's size. */
mg_status mg_zip_read_at(mg_zip *z, int64_t position, void *dst, size_t n);

/* Little-endian numbers. */
static inline uint32_t mg_zip_get16(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t mg_zip_get32(const unsigned char *p) {
    return mg_zip_get16(p) | mg_zip_get16(p + 2) << 16;
}

/* zlib's allocator: memory is counted, and can be made to fail. */
void *mg_zip_alloc(void *context, unsigned n, unsigned size);
void mg_zip_free(void *context, void *block);

#endif
