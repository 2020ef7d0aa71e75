/* Copies from device to device: directly where the kind has such copies (mg_device_api.copy_peer),
 * else through host memory. */
#include "core/alloc.h"
#include "device/device.h"

/* Whether memcpy could reach the device's memory. */
static bool is_host_visible(const mg_device *d) {
    return mg_device_kind_is_host_visible(d->api);
}

/* MG_UNSUPPORTED: the two devices have no direct way. */
static mg_status copy_between(mg_device *to, void *dst, mg_device *from, const void *src,
                              size_t bytes) {
    if (to->api != from->api || !to->api->copy_peer) return MG_UNSUPPORTED;
    return to->api->copy_peer(to, dst, from, src, bytes);
}

/* At most one copy more than needed: where one side is host memory, no staging buffer is used. */
static mg_status copy_by_host(mg_device *to, void *dst, mg_device *from, const void *src,
                              size_t bytes) {
    if (is_host_visible(to)) return from->api->copy_out(from, dst, src, bytes);
    if (is_host_visible(from)) return to->api->copy_in(to, dst, src, bytes);
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
