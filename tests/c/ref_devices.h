/* The devices ref:0, ref:1, ... of a group of tests, and the end of all devices after it. */
#ifndef TESTS_C_REF_DEVICES_H
#define TESTS_C_REF_DEVICES_H

#include "core/alloc.h"
#include "device/device.h"

static inline void open_ref_devices(mg_device **devices, int n) {
    for (int i = 0; i < n; i++) {
        char name[] = "ref:0";
        name[4] = (char)('0' + i);
        devices[i] = mg_device_find(name);
    }
}

/* A group's teardown: not 0 if a block of memory is left. */
static inline int close_devices(void **state) {
    (void)state;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks != 0;
}

#endif
