/* The creation context and the device hooks: see context.h. */
#include "core/context.h"

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
