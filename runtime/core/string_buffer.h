/* Text that grows: for sources of kernels and keys of the cache. */
#ifndef MG_CORE_STRING_BUFFER_H
#define MG_CORE_STRING_BUFFER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Starts as zeros; `s` is from mg_alloc, for mg_free. When memory is short it stays short, and
 * mg_string_buffer_status says so. */
typedef struct mg_string_buffer {
    char *s;
    size_t n, room;
    bool failed;
} mg_string_buffer;

void mg_string_buffer_add(mg_string_buffer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* MG_OK, or MG_OOM, with message, and the text is freed. */
mg_status mg_string_buffer_status(mg_string_buffer *t);

#endif
