/* Tensors and buffers: life, counts, reading.
 *
 * A tensor's inputs and attributes lie in one block with it. Release is iterative: what dies is put
 * on a per-thread list and taken off in a loop, so a chain of any length needs no stack. */
#include "core/tensor.h"
#include "core/alloc.h"
#include "core/memory_report.h"
#include "core/variable.h"
#include "device/device.h"
#include "graph/graph.h"
#include <stdio.h>
#include <string.h>

static atomic_llong live_tensors;
static _Thread_local mg_tensor *dead_list;
static _Thread_local bool draining;
static _Thread_local const char *user_line;
static atomic_uint walk_number;

/* ---- buffers ---- */

/* What was asked, who has what, and what there is. */
static mg_status short_of_memory(mg_device *d, size_t bytes) {
    char owners[400], limit[64] = "the machine's";
    mg_device_info info = {0};
    mg_memory_report_describe(d, owners, sizeof owners);
    if (d->limit != INT64_MAX)
        snprintf(limit, sizeof limit, "%lld", (long long)d->limit);
    else if (d->api->describe && d->api->describe(d->ordinal, &info) == MG_OK)
        snprintf(limit, sizeof limit, "the device's, %lld", (long long)info.memory_bytes);
    return mg_fail(MG_OOM,
                   "%s: out of memory: asked %zu bytes, used %lld (%s), limit %s: use a smaller "
                   "batch%s",
                   d->name, bytes, (long long)atomic_load(&d->used), owners, limit,
                   d->limit != INT64_MAX ? " or raise MGPU_MEMORY" : "");
}

/* False if it would be over the limit. */
static bool count_in(mg_device *d, size_t bytes) {
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

mg_status mg_device_alloc(mg_device *d, size_t bytes, void **data) {
    if (mg_device_out_of_reach(d)) return mg_device_check(d);
    if (!count_in(d, bytes)) return short_of_memory(d, bytes);
    const mg_status status = d->api->alloc(d, bytes ? bytes : 1, data);
    if (status == MG_OK) return MG_OK;
    atomic_fetch_sub(&d->used, (long long)bytes);
    return status == MG_OOM ? short_of_memory(d, bytes) : status;
}

void mg_device_free(mg_device *d, void *data, size_t bytes) {
    if (!mg_device_out_of_reach(d)) d->api->free(d, data, bytes ? bytes : 1);
    atomic_fetch_sub(&d->used, (long long)bytes);
}

mg_buffer *mg_buffer_new(mg_device *device, size_t bytes) {
    mg_buffer *b = mg_alloc_zero(sizeof *b);
    if (!b) return NULL;
    if (mg_device_alloc(device, bytes, &b->data) != MG_OK) {
        mg_free(b);
        return NULL;
    }
    b->device = device;
    b->bytes = bytes;
    atomic_init(&b->refs, 1);
    return b;
}

mg_buffer *mg_buffer_retain(mg_buffer *b) {
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void mg_buffer_release(mg_buffer *b) {
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1) return;
    mg_device_free(b->device, b->data, b->bytes);
    mg_free(b);
}

/* ---- life ---- */

mg_tensor *mg_tensor_block(int n_inputs, size_t attrs_size) {
    const size_t head = sizeof(mg_tensor) + (size_t)n_inputs * sizeof(mg_tensor *);
    mg_tensor *t = mg_alloc_zero(head + attrs_size);
    if (!t) return NULL;
    atomic_init(&t->refs, 1);
    t->n_inputs = n_inputs;
    t->attrs = attrs_size ? (char *)t + head : NULL;
    t->where = user_line;
    atomic_fetch_add(&live_tensors, 1);
    return t;
}

static mg_tensor *leaf(mg_tensor_kind kind, mg_dtype dtype, const mg_shape *shape,
                       mg_device *device) {
    mg_tensor *t = mg_tensor_block(0, 0);
    if (!t) return NULL;
    t->kind = (uint8_t)kind;
    t->dtype = (uint8_t)dtype;
    t->shape = *shape;
    t->device = device;
    return t;
}

mg_tensor *mg_tensor_from_buffer(mg_buffer *b, mg_dtype dtype, const mg_shape *shape) {
    mg_tensor *t = leaf(MG_VALUE, dtype, shape, b->device);
    if (t) t->buffer = mg_buffer_retain(b);
    return t;
}

mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device) {
    if (!device) device = mg_device_default();
    if (!device || mg_shape_check(shape, "tensor") != MG_OK) return NULL;
    const size_t bytes = (size_t)mg_shape_count(shape) * mg_dtype_size(dtype);
    mg_buffer *b = mg_buffer_new(device, bytes);
    if (!b) return NULL;
    mg_tensor *t = NULL;
    if (bytes == 0 || device->api->copy_in(device, b->data, src, bytes) == MG_OK)
        t = mg_tensor_from_buffer(b, dtype, shape);
    mg_buffer_release(b);
    return t;
}

mg_tensor *mg_tensor_argument(int index, mg_dtype dtype, const mg_shape *shape, mg_device *device) {
    mg_tensor *t = leaf(MG_ARGUMENT, dtype, shape, device);
    if (!t) return NULL;
    t->index = index;
    t->trace = mg_trace_serial();
    return t;
}

mg_tensor *mg_tensor_varread(mg_variable *v) {
    mg_tensor *t = leaf(MG_VARREAD, (mg_dtype)v->value->dtype, &v->value->shape, v->value->device);
    if (!t) return NULL;
    t->variable = mg_variable_retain(v);
    t->trace = mg_trace_serial();
    return t;
}

mg_tensor *mg_tensor_retain(mg_tensor *t) {
    atomic_fetch_add(&t->refs, 1);
    return t;
}

static void put_on_dead_list(mg_tensor *t) {
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    t->next_dead = dead_list;
    dead_list = t;
}

static void drain_dead_list(void) {
    if (draining) return;
    draining = true;
    while (dead_list) {
        mg_tensor *t = dead_list;
        dead_list = t->next_dead;
        for (int i = 0; i < t->n_inputs; i++) put_on_dead_list(t->inputs[i]);
        mg_buffer_release(t->buffer);
        mg_variable_release(t->variable);
        mg_free(t);
        atomic_fetch_sub(&live_tensors, 1);
    }
    draining = false;
}

void mg_tensor_release(mg_tensor *t) {
    put_on_dead_list(t);
    drain_dead_list();
}

void mg_tensor_drop_history(mg_tensor *t) {
    if (t->kind != MG_LAZY || !t->buffer) return;
    t->kind = MG_VALUE;
    t->op = NULL;
    const int n = t->n_inputs;
    t->n_inputs = 0;
    for (int i = 0; i < n; i++) put_on_dead_list(t->inputs[i]);
    drain_dead_list();
}

/* ---- reading ---- */

/* Its elements are there, and will not be taken back. */
static mg_status make_readable(mg_tensor *t) {
    MG_TRY(mg_eval(&t, 1));
    mg_device *d = t->buffer->device;
    return mg_device_out_of_reach(d) ? mg_device_check(d) : mg_async_guards_settle(d);
}

mg_status mg_tensor_read(mg_tensor *t, void *dst) {
    MG_TRY(make_readable(t));
    const size_t bytes = mg_tensor_bytes(t);
    mg_device *d = t->buffer->device;
    return bytes ? d->api->copy_out(d, dst, t->buffer->data, bytes) : MG_OK;
}

mg_tensor *mg_tensor_copy(mg_tensor *t, mg_device *device) {
    if (make_readable(t) != MG_OK) return NULL;
    const size_t bytes = mg_tensor_bytes(t);
    mg_buffer *b = mg_buffer_new(device, bytes);
    if (!b) return NULL;
    mg_tensor *copy = NULL;
    if (mg_device_copy(device, b->data, t->buffer->device, t->buffer->data, bytes) == MG_OK)
        copy = mg_tensor_from_buffer(b, (mg_dtype)t->dtype, &t->shape);
    mg_buffer_release(b);
    return copy;
}

mg_status mg_tensor_read_double(mg_tensor *t, double *dst) {
    const size_t bytes = mg_tensor_bytes(t);
    void *raw = mg_alloc(bytes);
    if (!raw) return MG_OOM;
    mg_status status = mg_tensor_read(t, raw);
    if (status == MG_OK) mg_to_double(dst, raw, (mg_dtype)t->dtype, (size_t)mg_tensor_count(t));
    mg_free(raw);
    return status;
}

uint32_t mg_walk_begin(void) {
    return atomic_fetch_add(&walk_number, 1) + 1;
}

int64_t mg_tensor_live_count(void) {
    int64_t n = atomic_load(&live_tensors);
    for (const mg_device *d = mg_device_first(); d; d = d->next) n -= d->sound != NULL;
    return n;
}

void mg_user_line_set(const char *where) {
    user_line = where;
}

const char *mg_user_line(void) {
    return user_line;
}
