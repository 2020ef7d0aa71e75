/* The values of the launch options: see options.h. */
#include "program/launcher/options.h"
#include "world/host_list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PER_GPU = 64, MOST_RESTARTS = 1000000 };

mg_status mg_launcher_number(const char *option, const char *text, int most, int *number) {
    char *end = NULL;
    const long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (value < 1 || value > most || *end)
        return mg_fail(MG_USAGE, "%s %s: give a whole number from 1 to %d", option, text, most);
    *number = (int)value;
    return MG_OK;
}

mg_status mg_launcher_output(const char *text, mg_output *output) {
    static const char *const names[] = {"rank0", "all", "prefix"}; /* in the order of mg_output */
    const char *option = text ? "--output " : "MGPU_OUTPUT=";
    if (!text) text = getenv("MGPU_OUTPUT");
    *output = MG_OUTPUT_RANK0;
    if (!text || !*text) return MG_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *output = (mg_output)i;
            return MG_OK;
        }
    return mg_fail(MG_USAGE, "%s%s%s", option, text, mg_name_hint(text, names, 3, "choice"));
}

mg_status mg_launcher_ranks_per_gpu(const char *text) {
    int number;
    if (!text) return MG_OK;
    MG_TRY(mg_launcher_number("--nranks_per_gpu", text, MOST_PER_GPU, &number));
    setenv("MGPU_RANKS_PER_GPU", text, 1);
    return MG_OK;
}

mg_status mg_launcher_restarts(const char *text, int *restarts) {
    *restarts = 0;
    return text ? mg_launcher_number("--restart", text, MOST_RESTARTS, restarts) : MG_OK;
}

mg_status mg_launcher_elastic(const char *text, int *least, int *most) {
    int n = 0;
    *least = *most = 0;
    if (!text) return MG_OK;
    if (sscanf(text, "%6d:%6d%n", least, most, &n) == 2 && !text[n] && *least >= 1 &&
        *least <= *most && *most <= MG_MOST_SLOTS)
        return MG_OK;
    return mg_fail(MG_USAGE,
                   "--elastic %s: give the least and the largest number of processes, as in 2:4",
                   text);
}
