/* Tensors: immutable values, either computed (a buffer) or still to be made (an op and its inputs).
 *
 * Reference counted; creation checks shapes and computes nothing. Counts are atomic, so that
 * tensors may be released on any thread. Releasing a long chain does not recurse. */
#ifndef MG_CORE_TENSOR_H
#define MG_CORE_TENSOR_H

#include "core/dtype.h"
#include "core/shape.h"
#include "core/status.h"
#include <stdatomic.h>

typedef struct mg_device mg_device;
typedef struct mg_op mg_op;
typedef struct mg_variable mg_variable;

/* Device memory; the device's accounting counts it from birth to death. Counted. */
typedef struct mg_buffer {
    atomic_int refs;
    mg_device *device;
    size_t bytes;
    void *data;
} mg_buffer;

/* MG_OOM names asked, used and limit. */
mg_buffer *mg_buffer_new(mg_device *device, size_t bytes);
mg_buffer *mg_buffer_retain(mg_buffer *b);
void mg_buffer_release(mg_buffer *b);

typedef enum mg_tensor_kind {
    MG_LAZY,     /* op and inputs; may also have a buffer while a recording holds its history */
    MG_VALUE,    /* a buffer, no history */
    MG_ARGUMENT, /* placeholder of a trace: the index-th tensor argument of the call */
    MG_VARREAD   /* placeholder of a trace: the value of `variable` at entry */
} mg_tensor_kind;

typedef struct mg_tensor {
    atomic_int refs;
    uint8_t kind, dtype;
    uint16_t trace; /* serial of the trace it was made in (it is dead afterwards), or 0 */
    int32_t n_inputs;
    mg_shape shape;
    mg_device *device; /* where it lies; devices live as long as the runtime */
    bool any_device;   /* made of constants and random draws only: computed wherever it is used */
    mg_buffer *buffer; /* owned, or NULL */
    const mg_op *op;
    void *attrs;           /* op->attrs_size bytes, owned (same block as the tensor) */
    const char *where;     /* interned "file:line" of the user, while tracing; else NULL */
    mg_variable *variable; /* of MG_VARREAD, retained */
    int32_t index;         /* of MG_ARGUMENT */
    uint32_t seed;         /* of a random op made outside a trace: the key ... */
    uint64_t draw;         /* ... and its ordinal (inside a trace: counted from the run's base) */
    uint32_t mark;         /* scratch of graph walks: the walk's number ... */
    int32_t slot;          /* ... and what it noted here */
    struct mg_tensor *next_dead;
    struct mg_tensor *inputs[]; /* n_inputs, retained */
} mg_tensor;

/* Makes a lazy tensor of op. `attrs` (op->attrs_size bytes, or NULL for defaults) is copied. Checks
 * arity, promotes dtypes if the op says so, infers shape and dtype: errors raise here. Owned. */
mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs);

/* An empty block with room for inputs and attributes, for mg_apply. Owned. */
mg_tensor *mg_tensor_block(int n_inputs, size_t attrs_size);
/* A value from row-major host memory (copied to `device`, NULL = default device). Owned. */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device);
/* A value around an existing buffer (retained). Owned. */
mg_tensor *mg_tensor_from_buffer(mg_buffer *b, mg_dtype dtype, const mg_shape *shape);
/* Placeholders of a trace. Owned. */
mg_tensor *mg_tensor_argument(int index, mg_dtype dtype, const mg_shape *shape, mg_device *device);
mg_tensor *mg_tensor_varread(mg_variable *v);

mg_tensor *mg_tensor_retain(mg_tensor *t);
void mg_tensor_release(mg_tensor *t);

/* Evaluates if needed and copies the elements, row-major, to dst (count * dtype size bytes). */
mg_status mg_tensor_read(mg_tensor *t, void *dst);
/* Evaluates if needed: a value with the same elements in memory of its own on `device`. Owned. */
mg_tensor *mg_tensor_copy(mg_tensor *t, mg_device *device);
/* As doubles. */
mg_status mg_tensor_read_double(mg_tensor *t, double *dst);

/* Turns a lazy tensor that has a buffer into a plain value: drops op and inputs. */
void mg_tensor_drop_history(mg_tensor *t);

static inline int64_t mg_tensor_count(const mg_tensor *t) {
    return mg_shape_count(&t->shape);
}
static inline size_t mg_tensor_bytes(const mg_tensor *t) {
    return (size_t)mg_shape_count(&t->shape) * mg_dtype_size((mg_dtype)t->dtype);
}
/* A fresh walk number for mark/slot; walks are not nested and belong to one thread. */
uint32_t mg_walk_begin(void);

int64_t mg_tensor_live_count(void);

/* The user's line (interned "file:line"), noted in tensors made while it is set. Per thread. */
void mg_user_line_set(const char *where);
const char *mg_user_line(void);

#endif
