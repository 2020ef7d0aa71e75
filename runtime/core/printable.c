/* Control characters become visible: see printable.h. */
#include "core/printable.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The length of the character of UTF-8 that begins the n bytes, and its code point; 0: it is none.
 * Overlong forms, surrogates and numbers beyond U+10FFFF are none. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (length == 0 || length > n || s[0] > 0xF4) return 0;
    *code = length == 1 ? s[0] : s[0] & (0x7F >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3F);
    }
    if (length > 1 && *code < least[length]) return 0;
    return *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000) ? 0 : length;
}

/* Embeddings, overrides and isolates. */
static bool is_bidirectional(uint32_t code) {
    return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

/* The escape of the character at s, "" if it is printable; *length: its bytes. */
static void escape(const unsigned char *s, size_t n, bool one_line, char out[12], size_t *length) {
    uint32_t code = 0;
    out[0] = 0;
    *length = decode(s, n, &code);
    const bool broken = *length == 0;
    if (broken) *length = 1, code = s[0];
    if (!broken && (code == '\n' || code == '\t')) {
        if (one_line) strcpy(out, code == '\n' ? "\\n" : "\\t");
    } else if (broken || code < 0x20 || code == 0x7F) {
        const bool digit_follows = n > 1 && s[1] >= '0' && s[1] <= '9';
        snprintf(out, 12, digit_follows ? "\\%03u" : "\\%u", (unsigned)code);
    } else if (code < 0xA0 ? code >= 0x80 : is_bidirectional(code)) {
        snprintf(out, 12, "\\u{%X}", (unsigned)code);
    }
}

size_t mg_printable(const char *text, size_t n, bool one_line, char *to, size_t room) {
    size_t used = 0, end = 0; /* bytes of the whole; bytes that were written */
    for (size_t at = 0, length; at < n; at += length) {
        char out[12];
        escape((const unsigned char *)text + at, n - at, one_line, out, &length);
        const char *from = *out ? out : text + at;
        const size_t size = *out ? strlen(out) : length;
        if (used == end && used + size < room) {
            memcpy(to + end, from, size);
            end += size;
        }
        used += size;
    }
    if (room > 0) to[end] = 0;
    return used;
}
