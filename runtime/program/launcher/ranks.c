/* Starting ranks: see ranks.h. world/launch.c reads the variables that are set here. */
#include "program/launcher/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static void set_number(const char *name, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

void mg_ranks_prepare(int size, const char *hub, const char *token) {
    setenv("MGPU_LAUNCH", "mgpulua", 1);
    set_number("MGPU_SIZE", size);
    setenv("MGPU_HUB", hub, 1);
    setenv("MGPU_TOKEN", token, 1);
    setenv("MGPU_OUTPUT", "all", 1); /* the launcher drops or prefixes output itself */
}

mg_status mg_ranks_start(mg_crew *crew, const mg_ranks *r) {
    for (int i = 0; i < r->n; i++) {
        mg_member *m = &crew->members[crew->n];
        m->rank = r->first + i;
        set_number("MGPU_RANK", m->rank);
        set_number("MGPU_LOCAL_RANK", r->local_first + i);
        set_number("MGPU_LOCAL_SIZE", r->local_size);
        MG_TRY(mg_crew_start(
            crew, &(mg_start){.argv = r->argv, .program = "/proc/self/exe", .output = r->output}));
    }
    return MG_OK;
}
