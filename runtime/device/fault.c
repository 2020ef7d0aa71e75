/* Injected failures: see fault.h. A lost device may come back when another failure is planned. */
#include "device/fault.h"
#include "device/device.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_fault planned; /* with the lock, as `matches` */
static int matches;
static atomic_bool is_planned;
static atomic_int times_let_go;

void mg_fault_plan(const mg_fault *fault) {
    pthread_mutex_lock(&lock);
    planned = fault ? *fault : (mg_fault){.at = 0};
    matches = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&is_planned, fault && fault->at > 0);
}

void mg_fault_let_go(void) {
    atomic_fetch_add(&times_let_go, 1);
}

bool mg_fault_planned(void) {
    return atomic_load(&is_planned);
}

/* Whether it is this step's turn to fail, and how. */
static bool take(const mg_device *d, const char *op, bool commit, mg_fault *fault) {
    pthread_mutex_lock(&lock);
    *fault = planned;
    const bool match = commit == fault->commit && strcmp(d->name, fault->device) == 0 &&
                       (!fault->op[0] || strcmp(op, fault->op) == 0);
    const bool due = match && ++matches == fault->at;
    pthread_mutex_unlock(&lock);
    return due;
}

mg_status mg_fault_check(const mg_device *d, const char *op, bool commit,
                         bool (*given_up)(void *context), void *context) {
    const struct timespec nap = {.tv_nsec = 5000000};
    const int before = atomic_load(&times_let_go);
    mg_fault fault;
    if (!take(d, op, commit, &fault)) return MG_OK;
    if (fault.lost) {
        while (atomic_load(&times_let_go) == before) nanosleep(&nap, NULL);
        return MG_OK; /* late: it goes on with what it was at */
    }
    while (fault.stuck && !given_up(context)) nanosleep(&nap, NULL);
    return mg_fail(MG_DEVICE, fault.stuck ? "did not answer (injected)" : "failed (injected)");
}
