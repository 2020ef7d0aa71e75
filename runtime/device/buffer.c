/* Device memory: counted allocation, buffers, and the message when a device runs out of it.
 *
 * Every allocation adds to the device's `used` before it is made and is taken off when it is freed,
 * so `used` never exceeds the limit. */
#include "device/buffer.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include "core/variable.h"
#include "device/device.h"
#include <errno.h>
#include <stdio.h>

/* ---- what the out-of-memory message says ---- */

enum { LARGEST = 3 }; /* variables named in the message */

/* A variable, and its bytes on the device in question. */
typedef struct memory_owner {
    const char *name;
    size_t bytes;
} memory_owner;

/* What mg_variables_visit gathers. */
typedef struct memory_report {
    const mg_device *device;
    size_t variables;          /* bytes of all variables on the device */
    memory_owner top[LARGEST]; /* the largest, in falling order */
} memory_report;

/* The value's bytes on d, whether it is the value itself or a replica. */
static size_t variable_bytes_on(const mg_variable *v, const mg_device *d) {
    size_t bytes = v->value->device == d && v->value->buffer ? v->value->buffer->bytes : 0;
    for (int i = 0; i < v->n_replicas; i++)
        if (v->replicas[i].device == d) bytes += mg_tensor_bytes(v->replicas[i].value);
    return bytes;
}

/* Adds one variable, and inserts it among the largest if it is one of them. */
static void add_variable(const mg_variable *v, void *context) {
    memory_report *r = context;
    memory_owner o = {v->name, variable_bytes_on(v, r->device)};
    r->variables += o.bytes;
    for (int i = 0; i < LARGEST; i++) {
        if (o.bytes <= r->top[i].bytes) continue;
        const memory_owner smaller = r->top[i];
        r->top[i] = o;
        o = smaller;
    }
}

/* "work space of plans 2.1 MiB, variables 9.0 MiB (largest: dense.kernel 7.6 MiB, ...), other
 * tensors 830.2 KiB" in text. */
static void describe_memory(const mg_device *d, char *text, size_t size) {
    memory_report r = {.device = d};
    mg_variables_visit(add_variable, &r);
    const size_t known = r.variables + d->arena_bytes, used = (size_t)atomic_load(&d->used);
    size_t at = (size_t)snprintf(text, size, "work space of plans %s, variables %s",
                                 MG_SIZE_TEXT(d->arena_bytes), MG_SIZE_TEXT(r.variables));
    for (int i = 0; i < LARGEST && r.top[i].bytes && at < size; i++)
        at +=
            (size_t)snprintf(text + at, size - at, "%s%s %s",
                             i ? ", " : " (largest: ", r.top[i].name, MG_SIZE_TEXT(r.top[i].bytes));
    if (at < size)
        snprintf(text + at, size - at, "%sother tensors %s", r.top[0].bytes ? "), " : ", ",
                 MG_SIZE_TEXT(used > known ? used - known : 0));
}

/* The message names the largest owners, because the user can make those smaller. */
static mg_status fail_out_of_memory(mg_device *d, size_t bytes) {
    char owners[400], limit[64] = "the machine's";
    mg_device_info info = {0};
    describe_memory(d, owners, sizeof owners);
    if (d->limit != INT64_MAX)
        snprintf(limit, sizeof limit, "%s", MG_SIZE_TEXT(d->limit));
    else if (d->api->describe && d->api->describe(d->ordinal, &info) == MG_OK)
        snprintf(limit, sizeof limit, "the device's, %s", MG_SIZE_TEXT(info.memory_bytes));
    return mg_fail(MG_OOM,
                   "%s: out of memory: asked %s, used %s (%s), limit %s: use a smaller batch%s%s",
                   d->name, MG_SIZE_TEXT(bytes), MG_SIZE_TEXT(atomic_load(&d->used)), owners, limit,
                   d->limit != INT64_MAX ? " or raise MGPU_MEMORY" : "", mg_reason_limits(ENOMEM));
}

/* ---- counted memory ---- */

/* Adds to used and peak; false, and nothing is added, if that would exceed the limit. */
static bool count_bytes(mg_device *d, size_t bytes) {
    const long long used = atomic_fetch_add(&d->used, (long long)bytes) + (long long)bytes;
    if (used > d->limit) {
        atomic_fetch_sub(&d->used, (long long)bytes);
        return false;
    }
    long long peak = atomic_load(&d->peak);
    while (used > peak && !atomic_compare_exchange_weak(&d->peak, &peak, used)) {
    }
    return true;
}

/* The status of an allocation that was counted before. */
static mg_status uncount_failure(mg_device *d, size_t bytes, mg_status status) {
    if (status == MG_OK) return MG_OK;
    atomic_fetch_sub(&d->used, (long long)bytes);
    return status == MG_OOM ? fail_out_of_memory(d, bytes) : status;
}

/* Allocates at least one byte, so that every block has an address. */
mg_status mg_device_alloc(mg_device *d, size_t bytes, void **data) {
    if (mg_device_out_of_reach(d)) return mg_device_check(d);
    if (!count_bytes(d, bytes)) return fail_out_of_memory(d, bytes);
    return uncount_failure(d, bytes, d->api->alloc(d, bytes ? bytes : 1, data));
}

/* The memory of a lost device is leaked: freeing it could wait for the device for ever. */
void mg_device_free(mg_device *d, void *data, size_t bytes) {
    if (!mg_device_out_of_reach(d)) d->api->free(d, data, bytes ? bytes : 1);
    atomic_fetch_sub(&d->used, (long long)bytes);
}

/* ---- buffers ---- */

/* Allocates the block of a buffer: uninitialised, or filled by staging. */
static mg_status make_block(mg_device *d, size_t bytes, const mg_staging *what, void **data) {
    if (!what) return mg_device_alloc(d, bytes, data);
    if (mg_device_out_of_reach(d)) return mg_device_check(d);
    if (!count_bytes(d, bytes)) return fail_out_of_memory(d, bytes);
    return uncount_failure(d, bytes, d->api->stage_in(d, what, data));
}

/* The record lies in host memory, the block on the device. */
static mg_buffer *new_buffer(mg_device *device, size_t bytes, const mg_staging *what) {
    mg_buffer *b = mg_alloc_zero(sizeof *b);
    if (!b) return NULL;
    if (make_block(device, bytes, what, &b->data) != MG_OK) {
        mg_free(b);
        return NULL;
    }
    b->device = device;
    b->bytes = bytes;
    atomic_init(&b->refs, 1);
    return b;
}

mg_buffer *mg_buffer_new(mg_device *device, size_t bytes) {
    return new_buffer(device, bytes, NULL);
}

/* The tensor holds the only reference to the buffer. */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device) {
    if (!device) device = mg_device_default();
    if (!device || mg_shape_check(shape, "tensor") != MG_OK) return NULL;
    if ((unsigned)dtype >= MG_N_DTYPES) {
        mg_fail(MG_USAGE, "tensor: there is no dtype %d", (int)dtype);
        return NULL;
    }
    const size_t bytes = (size_t)mg_shape_count(shape) * mg_dtype_size(dtype);
    if (bytes && !src) {
        mg_fail(MG_USAGE, "tensor: the numbers are NULL");
        return NULL;
    }
    mg_buffer *b = mg_buffer_new(device, bytes);
    if (!b) return NULL;
    mg_tensor *t = NULL;
    if (bytes == 0 || device->api->copy_in(device, b->data, src, bytes) == MG_OK)
        t = mg_tensor_from_buffer(b, dtype, shape);
    mg_buffer_release(b);
    return t;
}

/* ---- copies ahead of need ---- */

/* Devices that cannot stage, and buffers without bytes, have a plain copy. */
mg_buffer *mg_buffer_stage(mg_device *device, const mg_staging *what) {
    if (device->api->stage_in && what->bytes) return new_buffer(device, what->bytes, what);
    mg_buffer *b = mg_buffer_new(device, what->bytes);
    if (!b || what->bytes == 0) return b;
    if (device->api->copy_in(device, b->data, what->src, what->bytes) == MG_OK) return b;
    mg_buffer_release(b);
    return NULL;
}

mg_status mg_buffer_join(const mg_buffer *b) {
    if (!b->device->api->stage_join) return MG_OK;
    if (mg_device_out_of_reach(b->device)) return mg_device_check(b->device);
    return b->device->api->stage_join(b->device, b->data);
}

mg_status mg_buffer_stage_rows(mg_buffer *b, const mg_shards *shards, mg_device *const *devices,
                               size_t row_bytes, const mg_staging *how) {
    b->ahead = mg_alloc_zero(sizeof *b->ahead + (size_t)shards->n * sizeof b->ahead->part[0]);
    if (!b->ahead) return MG_OOM;
    for (int i = 0; i < shards->n; i++) {
        const size_t offset = (size_t)shards->first[i] * row_bytes;
        mg_staging what = *how;
        what.src = (const char *)b->data + offset;
        what.bytes = (size_t)shards->count[i] * row_bytes;
        if (!what.bytes || !devices[i]->api->stage_in) continue;
        mg_buffer *copy = mg_buffer_stage(devices[i], &what);
        if (!copy) return mg_error_code();
        b->ahead->part[b->ahead->n++] = (struct mg_row_copy){offset, copy};
    }
    return MG_OK;
}

mg_status mg_buffer_find_rows(const mg_buffer *b, const mg_device *device, size_t offset,
                              size_t bytes, mg_buffer **found) {
    *found = NULL;
    for (int i = 0; b->ahead && i < b->ahead->n; i++) {
        mg_buffer *copy = b->ahead->part[i].copy;
        if (copy->device != device || b->ahead->part[i].offset != offset || copy->bytes != bytes)
            continue;
        MG_TRY(mg_buffer_join(copy));
        *found = mg_buffer_retain(copy);
        return MG_OK;
    }
    return MG_OK;
}

/* ---- copies from device to device: directly where the kind has such copies
 * (mg_device_api.copy_peer), else through host memory ---- */

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

/* A staging buffer is used only if neither side is host memory. */
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

mg_status mg_device_read_through(mg_device *d, void *dst, const void *src, size_t bytes) {
    bool interrupted = false;
    mg_status status = d->api->copy_out(d, dst, src, bytes);
    while (status == MG_INTERRUPTED) {
        interrupted = true;
        mg_error_clear();
        status = d->api->copy_out(d, dst, src, bytes);
    }
    if (interrupted) mg_interrupt_by(mg_interrupt_signal());
    return status;
}
