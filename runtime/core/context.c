/* The creation context and the device hooks: see context.h.
 *
 * The hooks are set before main and never change, so reading them needs no lock. */
#include "core/context.h"

/* Each thread traces and creates tensors on its own. */
static _Thread_local mg_context context;
static const mg_device_hooks *device_hooks;

mg_context *mg_context_get(void) {
    return &context;
}

void mg_device_hooks_install(const mg_device_hooks *hooks) {
    device_hooks = hooks;
}

const mg_device_hooks *mg_device_hooks_get(void) {
    return device_hooks;
}
