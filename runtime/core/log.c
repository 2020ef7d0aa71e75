/* The log: one line to one sink for each event of a topic that MGPU_LOG names. */
#include "core/log.h"
#include "core/alloc.h"
#include "core/printable.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: stderr. Set before any device thread runs. */
static void (*sink)(const char *line, void *context);
static void *sink_context;

/* MGPU_LOG is read each time, so a test or a debugger may change it. A topic matches as a whole
 * word between commas. */
bool mg_log_on(const char *topic) {
    const char *p = getenv("MGPU_LOG");
    const size_t n = strlen(topic);
    for (; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, topic, n) == 0 && (p[n] == ',' || p[n] == 0)) return true;
    return false;
}

/* Makes control characters of the line visible, and writes it to stderr, in one write, or to the
 * sink that a host program has set. Without memory, a long line is cut. */
static void write_line(const char *text) {
    char room[1024 + 1], *line = room; /* and room for the newline */
    const size_t length = mg_printable(text, strlen(text), false, room, sizeof room - 1);
    char *longer = length >= sizeof room - 1 ? mg_alloc(length + 2) : NULL;
    if (longer) mg_printable(text, strlen(text), false, line = longer, length + 1);
    if (sink) {
        sink(line, sink_context);
    } else {
        strcpy(line + strlen(line), "\n");
        fputs(line, stderr);
    }
    mg_free(longer);
}

/* A text longer than the line (a plan, a kernel's source) is formatted again into allocated memory;
 * if there is none, it is cut short. */
void mg_log(const char *topic, const char *format, ...) {
    char line[512], *text = line;
    va_list args, again;
    const int head = snprintf(line, sizeof line, "mgpulua: %s: ", topic);
    const size_t room = sizeof line - (size_t)head;
    va_start(args, format);
    va_copy(again, args); /* args is used up by the first formatting */
    const int length = vsnprintf(line + head, room, format, args);
    char *longer = length >= (int)room ? mg_alloc((size_t)(head + length) + 1) : NULL;
    if (longer) {
        memcpy(longer, line, (size_t)head);
        vsnprintf(longer + head, (size_t)length + 1, format, again);
        text = longer;
    }
    va_end(again);
    va_end(args);
    write_line(text);
    mg_free(longer);
}

/* The context is handed to every call of the sink. */
void mg_log_set_sink(void (*to)(const char *line, void *context), void *context) {
    sink = to;
    sink_context = context;
}
