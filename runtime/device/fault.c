/* Fault injection: see fault.h. One fault is planned at a time, for the whole process. A device
 * that hangs as lost waits for a counter to change, so that a later fault cannot hold it again. */
#include "device/fault.h"
#include "device/device.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_fault planned; /* with the lock */
static int matches;      /* steps seen so far that the fault applies to; with the lock */
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

/* Counts the step if the planned fault applies to it, and returns whether it is the one to fail. */
static bool take_fault(const mg_device *d, const char *op, bool commit, mg_fault *fault) {
    pthread_mutex_lock(&lock);
    *fault = planned;
    const bool match = commit == fault->commit && strcmp(d->name, fault->device) == 0 &&
                       (!fault->op[0] || strcmp(op, fault->op) == 0);
    if (match) matches++;
    const bool due = match && (matches == fault->at || (fault->again && matches > fault->at));
    pthread_mutex_unlock(&lock);
    return due;
}

/* A stuck device polls `given_up`, a lost one polls the counter of mg_fault_let_go; both sleep in
 * between. */
mg_status mg_fault_check(const mg_device *d, const char *op, bool commit,
                         bool (*given_up)(void *context), void *context) {
    const struct timespec nap = {.tv_nsec = 5000000};
    const int before = atomic_load(&times_let_go);
    mg_fault fault;
    if (!take_fault(d, op, commit, &fault)) return MG_OK;
    if (fault.lost) {
        while (atomic_load(&times_let_go) == before) nanosleep(&nap, NULL);
        return MG_OK; /* as a device that answers too late */
    }
    while (fault.stuck && !given_up(context)) nanosleep(&nap, NULL);
    return mg_fail(MG_DEVICE, fault.stuck ? "did not answer (injected)" : "failed (injected)");
}
