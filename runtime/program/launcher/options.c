/* The values of the launch options: see options.h. */
#include "program/launcher/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PER_GPU = 64 };

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
