/* Flags, as in threads.c: a lock-free atomic is all that a signal handler may touch. */
#include "core/stop.h"
#include "core/threads.h"
#include <stdatomic.h>

static atomic_bool listening, saved;
static atomic_int requested; /* a signal's number, or 0 */

void mg_stop_listen(bool on) {
    atomic_store(&listening, on);
    const int late = atomic_exchange(&requested, 0);
    if (on)
        atomic_store(&saved, false);
    else if (late && !atomic_load(&saved))
        mg_interrupt_by(late);
}

bool mg_stop_request(int reason) {
    if (!atomic_load(&listening)) return false;
    atomic_store(&requested, reason);
    return true;
}

int mg_stop_requested(void) {
    return atomic_load(&requested);
}

void mg_stop_set_saved(void) {
    atomic_store(&saved, true);
}

bool mg_stop_saved(void) {
    return atomic_load(&saved);
}
