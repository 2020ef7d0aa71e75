/* Copies from device to device: by the devices themselves where they can, else by way of the host.
 */
#include "core/alloc.h"
#include "device/host.h"

/* Whether its addresses are the host's. */
static bool is_host(const mg_device *d) {
    return d->api->copy_in == mg_host_copy;
}

static mg_status copy_between(mg_device *to, void *dst, mg_device *from, const void *src,
                              size_t bytes) {
    if (to->api != from->api || !to->api->copy_peer) return MG_UNSUPPORTED;
    return to->api->copy_peer(to, dst, from, src, bytes);
}

static mg_status copy_by_host(mg_device *to, void *dst, mg_device *from, const void *src,
                              size_t bytes) {
    if (is_host(to)) return from->api->copy_out(from, dst, src, bytes);
    if (is_host(from)) return to->api->copy_in(to, dst, src, bytes);
    void *staging = mg_alloc(bytes);
    if (!staging) return MG_OOM;
    mg_status status = from->api->copy_out(from, staging, src, bytes);
    if (status == MG_OK) status = to->api->copy_in(to, dst, staging, bytes);
    mg_free(staging);
    return status;
}

mg_status mg_device_copy(mg_device *to, void *dst, mg_device *from, const void *src, size_t bytes) {
    if (mg_device_out_of_reach(to)) return mg_device_check(to);
    if (mg_device_out_of_reach(from)) return mg_device_check(from);
    if (bytes == 0) return MG_OK;
    const mg_status status = copy_between(to, dst, from, src, bytes);
    return status == MG_UNSUPPORTED ? copy_by_host(to, dst, from, src, bytes) : status;
}
