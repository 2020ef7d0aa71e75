/* mgpu.h: the C interface of libmgpu, for host programs. This header stands alone.
 *
 * The library installs no signal handlers, writes only through the log sink and never exits. Any
 * thread may call it; a tensor's value is made on the thread that asks for it. Whoever gets a
 * tensor "owned" calls mg_tensor_release on it once.
 *
 * A function that fails returns a status other than MG_OK, or NULL; mg_error_message() then holds
 * one sentence that says what went wrong and what to do, until the thread's next failure.
 *
 * Models live in Lua: a host that wants them links libmgpu-lua, opens a Lua state and works through
 * it (see the end). Several states may load it, each used by one thread at a time; what they print
 * goes through `mgpu.output`. */
#ifndef MGPU_H
#define MGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

#ifndef MG_CORE_STATUS_H /* the library's own files have these from core/ */
typedef enum mg_status {
    MG_OK = 0,
    MG_USAGE,       /* a wrong argument: shape, dtype, option, name */
    MG_DATA,        /* wrong contents: a label out of range, a damaged file */
    MG_IO,          /* the operating system refused */
    MG_OOM,         /* memory limit or allocator */
    MG_NONFINITE,   /* NaN or infinity where a number was needed */
    MG_DEVICE,      /* a device failed */
    MG_COMM,        /* a peer failed */
    MG_INTERRUPTED, /* mg_interrupt() */
    MG_UNSUPPORTED, /* legal, but not available here */
    MG_INTERNAL     /* our mistake */
} mg_status;
#endif

/* The thread's last message ("" if none) and its code. Borrowed until its next failure. */
const char *mg_error_message(void);
mg_status mg_error_code(void);
/* "usage", "data", ... A constant. */
const char *mg_status_name(mg_status code);

/* ---- element types and shapes ---- */

#ifndef MG_CORE_DTYPE_H
typedef enum mg_dtype {
    MG_BOOL, /* a byte, 0 or 1 */
    MG_U8,
    MG_I32,
    MG_I64,
    MG_BF16,
    MG_F16,
    MG_F32,
    MG_F64
} mg_dtype;
#endif

/* "float32", ... A constant. */
const char *mg_dtype_name(mg_dtype t);
/* Bytes of one element. */
size_t mg_dtype_size(mg_dtype t);

#ifndef MG_CORE_SHAPE_H
#define MG_MAX_RANK 8
typedef struct mg_shape { /* outermost axis first; elements lie in row-major order */
    int32_t rank;
    int32_t unused; /* 0 */
    int64_t dim[MG_MAX_RANK];
} mg_shape;
#endif

/* A shape of `rank` axes (at most MG_MAX_RANK). */
mg_shape mg_shape_of(int rank, const int64_t *dims);

/* ---- devices ---- */

typedef struct mg_device mg_device;

/* "cpu", "cpu:1", "ref:0", "cuda:0": opened at first use. Borrowed: devices live until
 * mg_devices_close(). NULL if the name is unknown or the plug-in is missing. */
mg_device *mg_device_find(const char *name);
/* Where new tensors lie. Borrowed. */
mg_device *mg_device_default(void);
void mg_device_set_default(mg_device *d);
/* Closes all devices and frees what they hold: after the last tensor and the last lua_close(). */
void mg_devices_close(void);

/* ---- tensors ---- */

typedef struct mg_tensor mg_tensor;

/* A tensor with a copy of `count` row-major elements at src, on `device` (NULL: the default).
 * Owned. NULL if memory is short. */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device);
/* Computes the value if that has not happened yet and copies it to dst, row-major: element count
 * times mg_dtype_size() bytes; or as doubles. dst stays the caller's. */
mg_status mg_tensor_read(mg_tensor *t, void *dst);
mg_status mg_tensor_read_double(mg_tensor *t, double *dst);
/* One more owner of t; returns t. */
mg_tensor *mg_tensor_retain(mg_tensor *t);
/* One owner less; accepts NULL. */
void mg_tensor_release(mg_tensor *t);

/* ---- ops ---- */

typedef struct mg_op mg_op;

/* The op of that name ("matmul", "add", ...); a constant. NULL if there is none. */
const mg_op *mg_op_find(const char *name);
/* A lazy tensor: op of n inputs (borrowed). Shapes and dtypes are checked here, nothing is
 * computed. `attrs` NULL means every option at its default. Owned. */
mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs);
/* Computes the values of t[0..n-1] together. */
mg_status mg_eval(mg_tensor *const *t, int n);
/* The gradients of the one number y by wrt[0..n-1]: grads[i] is owned, or NULL where y does not
 * depend on wrt[i]. Between mg_recording_begin and _end evaluated tensors keep their history. */
mg_status mg_grad(mg_tensor *y, mg_tensor *const *wrt, int n, mg_tensor **grads);
void mg_recording_begin(void);
void mg_recording_end(void);

/* ---- the running program ---- */

/* Asks the running computation to stop: its next step or binding call fails with MG_INTERRUPTED,
 * nothing of an unfinished step is committed, and everything stays usable. Safe in a signal
 * handler. */
void mg_interrupt(void);
/* Log lines (MGPU_LOG) go to sink; NULL: stderr. `context` stays the caller's. */
void mg_log_set_sink(void (*sink)(const char *line, void *context), void *context);

/* ---- Lua (libmgpu-lua and mgpu/core.so only) ---- */

struct lua_State;
/* Puts the table of mgpu.core on the stack: register it as package.preload["mgpu.core"], then
 * `require "mgpu"` finds the front end through package.path (lua/?.lua, lua/?/init.lua). The string
 * LUA_REGISTRYINDEX["mgpu.root"], set before, names the folder that holds lua/ and models/; without
 * it the folder is sought beside the library. */
int luaopen_mgpu_core(struct lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
