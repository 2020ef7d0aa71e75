/* Injected failures: see fault.h. */
#include "device/fault.h"
#include "device/device.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static mg_fault planned;
static atomic_int matches;
static atomic_int times_let_go;

void mg_fault_plan(const mg_fault *fault) {
    planned = fault ? *fault : (mg_fault){.at = 0};
    atomic_store(&matches, 0);
}

void mg_fault_let_go(void) {
    atomic_fetch_add(&times_let_go, 1);
}

bool mg_fault_planned(void) {
    return planned.at > 0;
}

mg_status mg_fault_check(const mg_device *d, const char *op, bool commit,
                         bool (*given_up)(void *context), void *context) {
    if (commit != planned.commit || strcmp(d->name, planned.device) != 0) return MG_OK;
    if (planned.op[0] && strcmp(op, planned.op) != 0) return MG_OK;
    if (atomic_fetch_add(&matches, 1) + 1 != planned.at) return MG_OK;
    const struct timespec nap = {.tv_nsec = 5000000};
    const int before = atomic_load(&times_let_go);
    if (planned.lost) { /* the plan may be another afterwards */
        while (atomic_load(&times_let_go) == before) nanosleep(&nap, NULL);
        return MG_OK; /* late: it goes on with what it was at */
    }
    while (planned.stuck && !given_up(context)) nanosleep(&nap, NULL);
    return mg_fail(MG_DEVICE, planned.stuck ? "did not answer (injected)" : "failed (injected)");
}
