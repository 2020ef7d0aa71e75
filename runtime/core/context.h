/* What core and ops need to know of the layers above them, without including their headers.
 *
 * The creation context says what a new tensor takes from its surroundings: graph/trace.c sets the
 * trace, the bindings set the user's line and the layer. The device hooks are the few things that
 * tensors and mg_apply ask of devices: device/device.c installs them before main. */
#ifndef MG_CORE_CONTEXT_H
#define MG_CORE_CONTEXT_H

#include "core/activity.h"
#include <stddef.h>
#include <stdint.h>

typedef struct mg_device mg_device;
typedef struct mg_op mg_op;
typedef struct mg_tensor mg_tensor;

typedef struct mg_context {
    uint16_t trace;   /* serial number of the open trace, never 0; 0: none is open */
    uint64_t n_draws; /* random draws made so far in the open trace */
    mg_origin origin; /* of ops; its line is set for one op at a time */
    /* While the body of a loop is traced: makes the draws of all steps outside of it, and returns
     * the parameter for those of one step. Else NULL. */
    mg_tensor *(*draw)(const mg_op *op, const void *attrs);
} mg_context;

/* The calling thread's context; never NULL. */
mg_context *mg_context_get(void);

typedef struct mg_device_hooks {
    /* The device that new tensors lie on if nothing else decides; NULL after mg_fail. */
    mg_device *(*find_default)(void);
    const char *(*name)(const mg_device *d);
    /* Gives back memory of mg_buffer_new. */
    void (*free)(mg_device *d, void *data, size_t bytes);
} mg_device_hooks;

/* `hooks` must live as long as the process. */
void mg_device_hooks_install(const mg_device_hooks *hooks);
const mg_device_hooks *mg_device_hooks_get(void);

#endif
