/* Several strings in one cell: each as its length, 8 bytes, and its bytes, one behind the other. */
#ifndef MG_DATA_TEXTS_H
#define MG_DATA_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

/* A string, which any byte may be in. */
typedef struct mg_text {
    const void *bytes; /* borrowed */
    size_t n;
} mg_text;

/* The bytes of a cell with these strings; and writes them to dst. */
size_t mg_texts_size(const mg_text *texts, size_t n);
void mg_texts_pack(const mg_text *texts, size_t n, void *dst);
/* Sets *text to the string at *at, and *at to the place behind it. False: what is there up to `end`
 * is no string. */
bool mg_texts_next(const char **at, const char *end, mg_text *text);

#endif
