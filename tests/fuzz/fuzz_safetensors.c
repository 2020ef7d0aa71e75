/* Fuzzer of the safetensors reader: any bytes must be read or refused, without leaking memory. Run
 * by `make fuzz`.
 *
 * A safetensors file is 8 bytes with the length of the header, the header (JSON), and data. A
 * fuzzer would need long to find a right length, so it is computed here: the first byte of the
 * input says how many bytes at the end are data; the rest is the header. A checksum in the header
 * is made right for the same reason, if there is one: what comes behind it is to be reached, too.
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "device/device.h"
#include "io/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Makes the checksum in the header right, if it has one, for the `size` bytes behind the header. */
static void seal(char *header, size_t n, size_t size) {
    char *digits = mg_safetensors_find_checksum(header, n);
    if (!digits) return;
    digits += strlen(SAFETENSORS_HASH);
    const uint64_t data = XXH3_64bits(header + n, size);
    mg_safetensors_put_hash(digits + SAFETENSORS_DIGITS + 1, data);
    mg_safetensors_put_hash(digits, mg_safetensors_hash_blanked(header, n, digits));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    unsigned char length[8] = {0};
    if (n < 1 || n > 1 << 20) return 0;
    const size_t size = bytes[0] < n - 1 ? bytes[0] : n - 1, header = n - 1 - size;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header >> 8 * i);
    mg_device_set_default(mg_device_find("ref:0"));
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    char *copy = malloc(n);
    memcpy(copy, bytes + 1, n - 1);
    seal(copy, header, size);
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, length, 8) != 8 || write(fd, copy, n - 1) != (ssize_t)n - 1) abort();
    free(copy);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mg_store_file *f = mg_store_open(path, true);
    if (f) mg_store_read(f);
    mg_store_close(f);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
