/* The log: topics of MGPU_LOG, one sink. */
#include "core/log.h"
#include "core/alloc.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*sink)(const char *line, void *context);
static void *sink_context;

bool mg_log_on(const char *topic) {
    const char *p = getenv("MGPU_LOG");
    const size_t n = strlen(topic);
    for (; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, topic, n) == 0 && (p[n] == ',' || p[n] == 0)) return true;
    return false;
}

static void give(const char *line) {
    if (sink)
        sink(line, sink_context);
    else
        fprintf(stderr, "%s\n", line);
}

/* What does not fit, a plan or a kernel's source, takes memory; without any it is cut short. */
void mg_log(const char *topic, const char *format, ...) {
    char line[512], *text = line;
    va_list args, again;
    const int head = snprintf(line, sizeof line, "mgpulua: %s: ", topic);
    const size_t room = sizeof line - (size_t)head;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(line + head, room, format, args);
    char *longer = length >= (int)room ? mg_alloc((size_t)(head + length) + 1) : NULL;
    if (longer) {
        memcpy(longer, line, (size_t)head);
        vsnprintf(longer + head, (size_t)length + 1, format, again);
        text = longer;
    }
    va_end(again);
    va_end(args);
    give(text);
    mg_free(longer);
}

void mg_log_set_sink(void (*to)(const char *line, void *context), void *context) {
    sink = to;
    sink_context = context;
}
