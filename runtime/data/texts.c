/* Packing strings into a cell, and finding them there. */
#include "data/texts.h"
#include <stdint.h>
#include <string.h>

size_t mg_texts_size(const mg_text *texts, size_t n) {
    size_t size = n * sizeof(uint64_t);
    for (size_t i = 0; i < n; i++) size += texts[i].n;
    return size;
}

void mg_texts_pack(const mg_text *texts, size_t n, void *dst) {
    char *p = dst;
    for (size_t i = 0; i < n; i++) {
        const uint64_t length = texts[i].n;
        memcpy(p, &length, sizeof length);
        p += sizeof length;
        if (length) memcpy(p, texts[i].bytes, length);
        p += length;
    }
}

bool mg_texts_next(const char **at, const char *end, mg_text *text) {
    uint64_t length;
    if ((size_t)(end - *at) < sizeof length) return false;
    memcpy(&length, *at, sizeof length);
    const char *bytes = *at + sizeof length;
    if (length > (uint64_t)(end - bytes)) return false;
    *text = (mg_text){bytes, (size_t)length};
    *at = bytes + length;
    return true;
}
