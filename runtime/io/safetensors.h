/* The row of the safetensors format for the list in store.c, and what its reader and writer share.
 *
 * A file is 8 bytes header length (little-endian), a JSON header of that length, then the tensors'
 * bytes, row-major and little-endian. The header maps each tensor's name to {dtype, shape,
 * data_offsets: [begin, end)}, with offsets counted from the end of the header, and "__metadata__"
 * to a map of strings.
 *
 * Our files have a checksum in the metadata: "mgpulua.checksum": "xxh3-64:HEADER:DATA", two XXH3
 * hashes of 16 hexadecimal digits. DATA is the hash of all bytes after the header; HEADER is that
 * of the length and the header, with the digits of HEADER itself as zeros. So a damaged header is
 * detected before any of its contents is used. */
#ifndef MG_IO_SAFETENSORS_H
#define MG_IO_SAFETENSORS_H

#include "io/store.h"

extern const mg_store_format mg_safetensors;

/* Sizes and XXH3 hashes of the two pieces of a file: length and header, and the data. */
typedef struct mg_safetensors_sums {
    int64_t header_bytes, data_bytes;
    uint64_t header_hash, data_hash;
} mg_safetensors_sums;

/* The `save` of the row. */
mg_status mg_safetensors_save(const mg_store *s, const char *path);
/* The same, to a file from mg_io_reuse, which is taken over, also on failure; NULL: a new file.
 * Wrong names in the store are found before a file is created or written to. */
mg_status mg_safetensors_write(const mg_store *s, const char *path, mg_file *f,
                               mg_safetensors_sums *sums);

#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_CHECKSUM "mgpulua.checksum"
#define SAFETENSORS_HASH "xxh3-64:"                       /* the beginning of the checksum's text */
enum { SAFETENSORS_LENGTH = 8, SAFETENSORS_DIGITS = 16 }; /* bytes */
enum { SAFETENSORS_CHECKSUM_SIZE = 8 + SAFETENSORS_DIGITS + 1 + SAFETENSORS_DIGITS };

/* safetensors_data.c: reads the tensors of an open file, whose entries are sorted and tile the
 * data, which begins at `start`. *hash becomes that of all their bytes. */
mg_status mg_safetensors_read_data(mg_store_file *f, int64_t start, uint64_t *hash);

/* The dtype's name in a file. */
const char *mg_safetensors_dtype(mg_dtype t);
/* MG_DATA or MG_UNSUPPORTED if a header of n bytes is too long for `data` bytes of data: parsing it
 * would take many times the memory of the file. */
mg_status mg_safetensors_check_header(const char *path, uint64_t n, int64_t data);
/* The first bytes of a file with a header of n bytes. */
void mg_safetensors_put_length(unsigned char raw[SAFETENSORS_LENGTH], uint64_t n);
/* The hash of the length and the header of n bytes. */
uint64_t mg_safetensors_hash_header(const char *header, size_t n);
/* The same with the digits at `digits` counted as zeros: they are overwritten and restored. */
uint64_t mg_safetensors_hash_blanked(char *header, size_t n, char *digits);
/* The position of the checksum's text in a header of n bytes, or NULL. */
char *mg_safetensors_find_checksum(char *header, size_t n);
/* Writes the 16 digits of a hash, without a zero at the end. */
void mg_safetensors_put_hash(char *digits, uint64_t hash);

#endif
