/* Records on standard output. */
#include "io/h5_helper/helper.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void put(const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t w = write(1, (const char *)bytes + done, n - done);
        if (w <= 0) _exit(3);
        done += (size_t)w;
    }
}

void put_header(mg_h5_header h, const char *path, const char *name) {
    h.path_length = (uint32_t)strlen(path);
    h.name_length = (uint32_t)strlen(name);
    put(&h, sizeof h);
    put(path, h.path_length);
    put(name, h.name_length);
}

void fail(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_header((mg_h5_header){.kind = MG_H5_ERROR, .type = MG_H5_TEXT, .bytes = strlen(text)}, "",
               "");
    put(text, strlen(text));
    _exit(1);
}

void *allocate(size_t n) {
    void *memory = malloc(n ? n : 1);
    if (!memory) fail("out of memory: %zu bytes are needed", n);
    return memory;
}
