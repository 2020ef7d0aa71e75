/* CRC-32C (Castagnoli), the checksum of TFRecord files. */
#ifndef MG_IO_CRC32C_H
#define MG_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* By the CPU's instruction for it (SSE 4.2, ARMv8 CRC), if there is one: several bytes a cycle. */
uint32_t mg_crc32c(const void *bytes, size_t n);
/* The same by a table, on any CPU: several cycles a byte. */
uint32_t mg_crc32c_by_table(const void *bytes, size_t n);

#endif
