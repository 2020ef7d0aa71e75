/* JSON text to and from jansson's values, with our errors and limits.
 *
 * jansson keeps its own allocator: it is the process's, and a program around us may use it too. */
#ifndef MG_IO_JSON_H
#define MG_IO_JSON_H

#include "core/status.h"
#include <jansson.h>
#include <stddef.h>

enum { MG_JSON_MAX_DEPTH = 128 };

/* The value in n bytes of text; MG_DATA naming `who`, line and column otherwise: damaged text, keys
 * that occur twice, nesting beyond MG_JSON_MAX_DEPTH. Owned (json_decref). */
json_t *mg_json_parse(const char *text, size_t n, const char *who);
/* Compact text, zero-terminated, keys in the order of their insertion or sorted. Owned (mg_free).
 */
char *mg_json_text(const json_t *value, int sorted, size_t *n);

#endif
