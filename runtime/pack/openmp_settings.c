/* libgomp, which is linked into a packed program, reads its settings from the environment before
 * main begins. device/kinds.c says which ones it needs and why; there they are set while a plug-in
 * is loaded. Here they are set by a constructor that runs before libgomp's, and removed by one that
 * runs after it: this file comes last where the program is linked. */
#include <stdbool.h>
#include <stdlib.h>

static const char *const settings[][2] = {{"GOMP_SPINCOUNT", "1000"},
                                          {"OMP_WAIT_POLICY", "active"}};
static bool is_ours[2];

__attribute__((constructor(101))) static void set(void) {
    for (int i = 0; i < 2; i++) {
        is_ours[i] = getenv(settings[i][0]) == NULL;
        setenv(settings[i][0], settings[i][1], 0);
    }
}

__attribute__((constructor)) static void unset(void) {
    for (int i = 0; i < 2; i++)
        if (is_ours[i]) unsetenv(settings[i][0]);
}
