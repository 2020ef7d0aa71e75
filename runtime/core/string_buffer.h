/* Text that grows: for kernel sources, cache keys and plan dumps. */
#ifndef MG_CORE_STRING_BUFFER_H
#define MG_CORE_STRING_BUFFER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Starts as zeros; `s` is from mg_alloc, for mg_free. After a failed allocation further additions
 * do nothing, and mg_string_buffer_status tells. */
typedef struct mg_string_buffer {
    char *s;
    size_t n, room;
    bool failed;
} mg_string_buffer;

/* Appends formatted text. */
void mg_string_buffer_add(mg_string_buffer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* MG_OK; or MG_OOM with a message, after the text has been freed. */
mg_status mg_string_buffer_status(mg_string_buffer *t);

#endif
