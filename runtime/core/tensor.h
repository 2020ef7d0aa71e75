/* Tensors: immutable values, either computed (a buffer) or lazy (an op and its inputs).
 *
 * This file is their data structure: life, counts and history. ops/op.c makes lazy tensors,
 * device/buffer.c makes values from host memory, graph/eval.c computes and reads them.
 * Tensors are reference counted, and counts are atomic, so any thread may release one. Releasing a
 * long chain does not recurse. */
#ifndef MG_CORE_TENSOR_H
#define MG_CORE_TENSOR_H

#include "core/activity.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/status.h"
#include <stdatomic.h>

typedef struct mg_device mg_device;
typedef struct mg_op mg_op;
typedef struct mg_variable mg_variable;
typedef struct mg_loop mg_loop;

/* ---- buffers: blocks of device memory, made by mg_buffer_new (device/buffer.h). Counted. ---- */

typedef struct mg_buffer {
    atomic_int refs;
    mg_device *device;
    size_t bytes;
    void *data;                  /* an address of the device, perhaps not readable by the host */
    struct mg_row_copies *ahead; /* owned; NULL: none */
} mg_buffer;

/* Parts of a buffer that have been copied to devices ahead of need (device/buffer.h). */
typedef struct mg_row_copies {
    int n;
    struct mg_row_copy {
        size_t offset;
        mg_buffer *copy; /* owned */
    } part[];
} mg_row_copies;

mg_buffer *mg_buffer_retain(mg_buffer *b);
/* Accepts NULL. The last release gives the memory back to the device. */
void mg_buffer_release(mg_buffer *b);

/* ---- tensors ---- */

typedef enum mg_tensor_kind {
    MG_LAZY,     /* op and inputs; may also have a buffer while its history is needed */
    MG_VALUE,    /* a buffer, no history */
    MG_ARGUMENT, /* placeholder of a trace: the index-th tensor argument of the call */
    MG_VARREAD,  /* placeholder of a trace: the value of `variable` at entry */
    MG_PARAMETER /* of the body of a loop (core/loop.h) */
} mg_tensor_kind;

typedef struct mg_tensor {
    atomic_int refs;
    uint8_t kind, dtype; /* mg_tensor_kind, mg_dtype */
    uint16_t trace; /* serial number of the trace it was made in and is usable in; 0: outside */
    int32_t n_inputs;
    mg_shape shape;
    mg_device *device;  /* where it lies; devices live as long as the runtime */
    bool any_device;    /* made of constants and random draws only: computed wherever it is used */
    bool in_loop;       /* depends on a parameter of a loop: has no value of its own */
    bool made_in_loop;  /* made while the body of a loop was traced */
    bool body_constant; /* of the body of a loop, which needs its history as long as it lives */
    mg_buffer *buffer;  /* owned, or NULL */
    const mg_op *op;    /* of MG_LAZY */
    void *attrs;        /* op->attrs_size bytes, in the same block as the tensor */
    mg_origin origin;   /* the line: while tracing only */
    mg_variable *variable;    /* of MG_VARREAD, retained */
    mg_loop *loop;            /* of a scan, retained */
    struct mg_recipe *recipe; /* of a result of a recorded run, retained: core/recipe.h */
    int32_t n_recorded;       /* of such a result: how many recorded runs come one after another */
    int32_t index;            /* of MG_ARGUMENT; of such a result: its number among the results */
    uint32_t seed;            /* of a random op: the key, unused inside a trace ... */
    uint64_t draw;            /* ... and the ordinal; inside a trace counted from the run's base */
    uint32_t visit;   /* scratch of graph/toposort.c: the number of the last walk that met it */
    int32_t position; /* its position in that walk's list */
    struct mg_tensor *next_dead; /* scratch of mg_tensor_release */
    struct mg_tensor *inputs[];  /* n_inputs, retained */
} mg_tensor;

/* A zeroed block with room for inputs and attributes, for mg_apply. Owned. */
mg_tensor *mg_tensor_block(int n_inputs, size_t attrs_size);
/* A value around an existing buffer (retained). Owned. */
mg_tensor *mg_tensor_from_buffer(mg_buffer *b, mg_dtype dtype, const mg_shape *shape);
/* Placeholders of the open trace. Owned. */
mg_tensor *mg_tensor_argument(int index, mg_dtype dtype, const mg_shape *shape, mg_device *device);
mg_tensor *mg_tensor_varread(mg_variable *v);
/* A parameter of a loop. Owned. */
mg_tensor *mg_tensor_parameter(mg_dtype dtype, const mg_shape *shape, mg_device *device);

mg_tensor *mg_tensor_retain(mg_tensor *t);
/* Accepts NULL. */
void mg_tensor_release(mg_tensor *t);

/* Turns a lazy tensor that has a buffer into a plain value: releases its inputs. Not a constant of
 * a loop's body. */
void mg_tensor_drop_history(mg_tensor *t);

/* MG_USAGE if one of t[0 .. n-1] is NULL, as after a failed call in a host program. `who` begins
 * the message. */
mg_status mg_tensors_check(mg_tensor *const *t, int n, const char *who);
static inline int64_t mg_tensor_count(const mg_tensor *t) {
    return mg_shape_count(&t->shape);
}
static inline size_t mg_tensor_bytes(const mg_tensor *t) {
    return (size_t)mg_shape_count(&t->shape) * mg_dtype_size((mg_dtype)t->dtype);
}

/* Tensors that exist, apart from the runtime's own: for memory reports and leak checks. */
int64_t mg_tensor_live_count(void);
/* The runtime itself keeps `change` more tensors (or fewer, if negative): they are not counted. */
void mg_tensor_count_internal(int change);

#endif
