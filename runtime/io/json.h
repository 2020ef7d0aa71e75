/* JSON text to and from jansson's values, with this library's errors and limits.
 *
 * jansson keeps its default allocator: changing it would change it for the whole process, and the
 * host program may use jansson too. */
#ifndef MG_IO_JSON_H
#define MG_IO_JSON_H

#include "core/status.h"
#include <jansson.h>
#include <stddef.h>

enum { MG_JSON_MAX_DEPTH = 128 };

/* Parses n bytes of text. Owned (json_decref). On failure NULL: MG_DATA with `who` (a file or
 * function), line and column for damaged text, duplicate keys and nesting beyond MG_JSON_MAX_DEPTH;
 * MG_OOM. */
json_t *mg_json_parse(const char *text, size_t n, const char *who);
/* The value as compact, zero-terminated text of *n bytes; keys are sorted if `sorted`, else in the
 * order of their insertion. Owned (mg_free). NULL: MG_OOM. */
char *mg_json_text(const json_t *value, int sorted, size_t *n);

#endif
