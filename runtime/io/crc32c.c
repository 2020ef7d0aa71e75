/* CRC-32C; the polynomial is 1EDC6F41, reflected. */
#include "io/tfrecord.h"
#include <stdbool.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

/* The CRC of the four bits 0 to 15. */
static const uint32_t crc_of_bits[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t mg_crc32c_by_table(const void *bytes, size_t n) {
    uint32_t crc = ~UINT32_C(0);
    for (const unsigned char *p = bytes; n; n--, p++) {
        crc ^= *p;
        crc = crc >> 4 ^ crc_of_bits[crc & 15];
        crc = crc >> 4 ^ crc_of_bits[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
#define CRC_TARGET "sse4.2"
#define CRC_8(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
#define CRC_1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
static bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#define CRC_TARGET "+crc"
#define CRC_8(crc, word) __crc32cd((crc), (word))
#define CRC_1(crc, byte) __crc32cb((crc), (byte))
static bool has_instruction(void) {
    return getauxval(AT_HWCAP) & 1 << 7; /* HWCAP_CRC32 */
}
#endif

#ifdef CRC_TARGET
__attribute__((target(CRC_TARGET))) static uint32_t by_instruction(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    uint32_t crc = ~UINT32_C(0);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = CRC_8(crc, word);
    }
    for (; n; n--, p++) crc = CRC_1(crc, *p);
    return ~crc;
}

uint32_t mg_crc32c(const void *bytes, size_t n) {
    return has_instruction() ? by_instruction(bytes, n) : mg_crc32c_by_table(bytes, n);
}
#else
uint32_t mg_crc32c(const void *bytes, size_t n) {
    return mg_crc32c_by_table(bytes, n);
}
#endif
