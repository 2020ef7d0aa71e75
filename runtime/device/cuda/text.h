/* Text that grows: for sources of kernels and keys of the cache. */
#ifndef MG_DEVICE_CUDA_TEXT_H
#define MG_DEVICE_CUDA_TEXT_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Starts as zeros; `s` is from mg_alloc, for mg_free. When memory is short it stays short, and
 * mg_text_status says so. */
typedef struct mg_text {
    char *s;
    size_t n, room;
    bool failed;
} mg_text;

void mg_text_add(mg_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* MG_OK, or MG_OOM, with message, and the text is freed. */
mg_status mg_text_status(mg_text *t);

#endif
