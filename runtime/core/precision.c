/* The precision and determinism settings of the process.
 *
 * They are read when a plan is compiled: changing them affects later plans only. */
#include "core/precision.h"
#include <stdatomic.h>

/* Atomic, because device threads compile side by side. */
static atomic_bool fast = true;
static atomic_bool deterministic = false;

bool mg_precision_fast(void) {
    return atomic_load(&fast);
}

void mg_precision_set_fast(bool on) {
    atomic_store(&fast, on);
}

bool mg_deterministic(void) {
    return atomic_load(&deterministic);
}

void mg_deterministic_set(bool on) {
    atomic_store(&deterministic, on);
}
