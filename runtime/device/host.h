/* Functions for the mg_device_api of kinds whose memory is the host's. */
#ifndef MG_DEVICE_HOST_H
#define MG_DEVICE_HOST_H

#include "device/device.h"

int mg_host_count(void);
mg_status mg_host_describe(int ordinal, mg_device_info *info);
mg_status mg_host_alloc(mg_device *d, size_t bytes, void **data);
void mg_host_free(mg_device *d, void *data, size_t bytes);
mg_status mg_host_copy(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_host_sync(mg_device *d);

#endif
