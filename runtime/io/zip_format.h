/* Numbers of the zip format that reader and writer share (PKWARE's APPNOTE 6.3.10), and zlib's
 * memory. */
#ifndef MG_IO_ZIP_FORMAT_H
#define MG_IO_ZIP_FORMAT_H

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

/* zlib's allocator: memory is counted, and can be made to fail. */
void *mg_zip_alloc(void *context, unsigned n, unsigned size);
void mg_zip_free(void *context, void *block);

#endif
