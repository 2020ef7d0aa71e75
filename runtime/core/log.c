/* The log: topics of MGPU_LOG, one sink. */
#include "core/log.h"
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

void mg_log(const char *topic, const char *format, ...) {
    char text[4096], line[4200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "mgpulua: %s: %s", topic, text);
    if (sink)
        sink(line, sink_context);
    else
        fprintf(stderr, "%s\n", line);
}

void mg_log_set_sink(void (*to)(const char *line, void *context), void *context) {
    sink = to;
    sink_context = context;
}
