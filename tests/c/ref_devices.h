/* Fixture: the reference devices ref:0, ref:1, ... for a group of tests, and the check that the
 * group has freed all its memory. */
#ifndef TESTS_C_REF_DEVICES_H
#define TESTS_C_REF_DEVICES_H

#include "core/alloc.h"
#include "device/device.h"

/* Opens ref:0 to ref:n-1, n at most 10. */
static inline void open_ref_devices(mg_device **devices, int n) {
    for (int i = 0; i < n; i++) {
        char name[] = "ref:0";
        name[4] = (char)('0' + i);
        devices[i] = mg_device_find(name);
    }
}

/* The same for ref:0, which becomes the default device. A group's setup returns whether it failed.
 */
static inline int open_default_ref(mg_device **device) {
    open_ref_devices(device, 1);
    if (*device) mg_device_set_default(*device);
    return *device == NULL;
}

/* A group's teardown: closes all devices; fails (not 0) if a block of memory or a tensor is left.
 */
static inline int close_devices(void **state) {
    (void)state;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks != 0 || mg_tensor_live_count() != 0;
}

#endif
