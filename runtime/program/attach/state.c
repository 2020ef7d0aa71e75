/* What a job says of itself without asking the script: from the activity of its threads and the
 * notes of core/visit.h. */
#include "core/activity.h"
#include "core/printable.h"
#include "core/visit.h"
#include "program/attach/attach.h"
#include "program/attach/server.h"
#include "world/world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct lines {
    char *text;
    size_t n, room;
} lines;

static __attribute__((format(printf, 2, 3))) void add(lines *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(to->text + to->n, to->room - to->n, format, arguments);
    va_end(arguments);
    if (n > 0 && to->n + (size_t)n < to->room) to->n += (size_t)n;
}

static void add_text(lines *to, const char *name, const char *text) {
    char shown[1200];
    mg_printable(text, strlen(text), true, shown, sizeof shown);
    add(to, "%s=%s\n", name, shown);
}

/* The number behind the first " name " of the spans, 0 without it. */
static long long number_of(const char *doing, const char *name) {
    const char *at = strstr(doing, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

static const char *state_of(const char *doing, bool paused) {
    if (paused && (strstr(doing, "paused") || !*doing)) return "paused";
    if (atomic_load(&mg_visit_noted.at_prompt)) return "prompt";
    if (strstr(doing, "waits for ")) return "waiting";
    return *doing ? "running" : "script";
}

size_t mg_attach_state(char *text, size_t room, const char *script, long long began, bool paused) {
    lines to = {text, 0, room};
    char doing[1000];
    const double loss = atomic_load(&mg_visit_noted.loss);
    const char *device = atomic_load(&mg_visit_noted.device);
    mg_activity_describe("main", doing, sizeof doing);
    add(&to, "version=%s\npid=%d\nrank=%d\nsize=%d\nbegan=%lld\n", MG_SERVER_VERSION, (int)getpid(),
        mg_world_rank(), mg_world_size(), began);
    add(&to, "state=%s\n", state_of(doing, paused));
    add(&to, "epoch=%lld\nepochs=%lld\n", number_of(doing, "epoch "),
        (long long)atomic_load(&mg_visit_noted.epochs));
    add(&to, "step=%lld\nsteps=%lld\n", number_of(doing, "batch "),
        (long long)atomic_load(&mg_visit_noted.steps));
    if (!isnan(loss)) add(&to, "loss=%.9g\n", loss);
    if (device) add_text(&to, "device", device);
    add_text(&to, "script", script);
    add_text(&to, "doing", doing);
    return to.n;
}
