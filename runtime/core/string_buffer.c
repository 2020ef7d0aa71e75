/* Text that grows: see string_buffer.h.
 *
 * After a failed allocation `failed` stays set and further additions do nothing, so callers check
 * once at the end. */
#include "core/string_buffer.h"
#include "core/alloc.h"
#include <stdarg.h>
#include <stdio.h>

/* Room for `more` characters and the terminator; at least doubles, so that many additions are
 * cheap. */
static bool make_room(mg_string_buffer *t, size_t more) {
    if (t->room - t->n > more) return true;
    const size_t room = 2 * (t->n + more) + 256;
    char *wider = mg_realloc(t->s, room);
    if (!wider) return false;
    t->s = wider;
    t->room = room;
    return true;
}

/* Measures first, then writes. */
void mg_string_buffer_add(mg_string_buffer *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    t->failed |= n < 0 || !make_room(t, (size_t)n);
    if (!t->failed) t->n += (size_t)vsnprintf(t->s + t->n, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
}

mg_status mg_string_buffer_status(mg_string_buffer *t) {
    if (!t->failed) return MG_OK;
    mg_free(t->s);
    *t = (mg_string_buffer){0};
    return mg_fail(MG_OOM, "out of memory for a text");
}
