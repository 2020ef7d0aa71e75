/* mgpu.h: the C interface of libmgpu, for host programs. This header needs no other of the library.
 *
 * Threads. Any thread may call any function. Threads that compute on one device take turns, step by
 * step; a tensor, variable or plan is used by one thread at a time. A lazy tensor is computed on
 * the thread that asks for its value. The library installs no signal handlers, never exits the
 * process, and prints nothing but log lines, which go through the log sink.
 *
 * Random numbers. One seed and one count of draws serve all threads and Lua states. If several of
 * them draw at once, the numbers depend on the order of their calls.
 *
 * Memory. A function that returns a tensor marked "Owned" gives the caller one reference; the
 * caller ends it with mg_tensor_release, once. Everything marked "Borrowed" belongs to the library
 * and must not be released. Tensors passed in stay the caller's; what the library keeps of them it
 * retains.
 *
 * Errors. A function that fails returns a status other than MG_OK, or NULL. mg_error_message() then
 * holds one sentence that says what went wrong and what to do, until the next failure on the same
 * thread. What was passed in is unchanged after a failure, unless stated otherwise.
 *
 * Examples. x is the tensor that the example of mg_tensor_from_host makes.
 *
 * Models, layers and training are written in Lua: a host that wants them links libmgpu-lua, opens a
 * Lua state and calls into it (see the end). Several states may load the library, each used by one
 * thread at a time; what their scripts print goes through `mgpu.output`. */
#ifndef MGPU_H
#define MGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

#ifndef MG_CORE_STATUS_H /* files of the library itself have these types from core/ */
/* What a function reports: success, or the kind of the failure. */
typedef enum mg_status {
    MG_OK = 0,      /* success */
    MG_USAGE,       /* a wrong argument: a shape, dtype, option or name */
    MG_DATA,        /* wrong data: a label out of range, a damaged file */
    MG_IO,          /* the operating system refused a file operation */
    MG_OOM,         /* the memory limit is reached, or the allocator failed */
    MG_NONFINITE,   /* NaN or infinity where a finite number is required */
    MG_DEVICE,      /* a device failed, or does not answer */
    MG_COMM,        /* communication between devices failed */
    MG_INTERRUPTED, /* mg_interrupt() was called */
    MG_UNSUPPORTED, /* legal, but not available in this build or on this machine */
    MG_INTERNAL     /* an error in the library */
} mg_status;
#endif

/* The message of the calling thread's last failure ("" if there was none). Borrowed until the next
 * failure on this thread.
 * \code
 * if (!mg_device_find("abacus:0")) puts(mg_error_message());
 * // --> unknown device "abacus:0"...
 * \endcode */
const char *mg_error_message(void);
/* The status of the same failure; MG_OK if there was none.
 * \code
 * mg_device_find("abacus:0");
 * puts(mg_status_name(mg_error_code())); // --> usage
 * \endcode */
mg_status mg_error_code(void);
/* The name of a status: "usage", "data", ... A constant; never NULL.
 * \code
 * puts(mg_status_name(MG_OOM)); // --> oom
 * \endcode */
const char *mg_status_name(mg_status code);

/* ---- element types and shapes ---- */

#ifndef MG_CORE_DTYPE_H
/* What the elements of a tensor are. */
typedef enum mg_dtype {
    MG_BOOL, /* one byte, 0 or 1 */
    MG_U8,
    MG_I32,
    MG_I64,
    MG_BF16,
    MG_F16,
    MG_F32,
    MG_F64
} mg_dtype;
#endif

/* The name of a dtype: "float32", ... A constant.
 * \code
 * puts(mg_dtype_name(MG_BF16)); // --> bfloat16
 * \endcode */
const char *mg_dtype_name(mg_dtype t);
/* The size of one element in bytes.
 * \code
 * printf("%zu\n", mg_dtype_size(MG_F64)); // --> 8
 * \endcode */
size_t mg_dtype_size(mg_dtype t);

#ifndef MG_CORE_SHAPE_H
/* The maximum number of axes of a tensor. */
#define MG_MAX_RANK 8
/* The sizes of a tensor, outermost axis first; elements are stored in row-major order. */
typedef struct mg_shape {
    int32_t rank;             /* the number of axes */
    int32_t unused;           /* must be 0 */
    int64_t dim[MG_MAX_RANK]; /* their sizes */
} mg_shape;
#endif

/* The shape with `rank` axes (0 to MG_MAX_RANK) of the given sizes, which are copied.
 * \code
 * const mg_shape images = mg_shape_of(4, (const int64_t[]){32, 28, 28, 1});
 * printf("%d %d\n", (int)images.rank, (int)images.dim[1]); // --> 4 28
 * \endcode */
mg_shape mg_shape_of(int rank, const int64_t *dims);

/* ---- devices ---- */

/* A device, such as "cpu:0". */
typedef struct mg_device mg_device;

/* The device of that name ("cpu", "cpu:1", "ref:0", "cuda:0"), opened at first use. Borrowed, valid
 * until mg_devices_close(). NULL: MG_USAGE for an unknown name, MG_UNSUPPORTED or MG_DEVICE if its
 * plug-in, driver or GPU is missing.
 * \code
 * mg_device *cpu = mg_device_find("cpu:0");
 * if (!cpu) puts(mg_error_message());
 * \endcode */
mg_device *mg_device_find(const char *name);
/* The device on which new tensors are made: "cuda:0" if there is one, else "cpu:0", else "ref:0",
 * unless mg_device_set_default has changed it. Borrowed as above. NULL if no device can be opened.
 * \code
 * const int32_t answer = 42;
 * const mg_shape scalar = mg_shape_of(0, NULL);
 * mg_tensor *t = mg_tensor_from_host(&answer, MG_I32, &scalar, mg_device_default());
 * mg_tensor_release(t);
 * \endcode */
mg_device *mg_device_default(void);
/* Makes d, from mg_device_find, the default device.
 * \code
 * mg_device *cpu = mg_device_find("cpu:0");
 * mg_device_set_default(cpu); // also on a machine with a GPU
 * printf("%d\n", mg_device_default() == cpu); // --> 1
 * \endcode */
void mg_device_set_default(mg_device *d);
/* Closes all devices and frees what they hold. Call it after the last tensor is released and the
 * last Lua state is closed; every mg_device pointer is invalid afterwards.
 * \code
 * mg_device_set_default(mg_device_find("cpu:0"));
 * mg_devices_close(); // every device's pointer is invalid from here on
 * mg_device *cpu = mg_device_find("cpu:0"); // opened again
 * if (!cpu) puts(mg_error_message());
 * \endcode */
void mg_devices_close(void);

/* ---- tensors ---- */

/* An array of numbers, with a value or still to be computed. Tensors are counted and immutable. */
typedef struct mg_tensor mg_tensor;

/* A tensor of the given dtype and shape whose elements are copied from src, in row-major order, to
 * `device` (NULL: the default device). src stays the caller's. Owned. NULL: MG_OOM, MG_USAGE for a
 * shape with too many elements, or a failure of the device.
 * \code
 * const float numbers[] = {1, 2, 3, 4, 5, 6}; // two rows of three
 * const mg_shape shape = mg_shape_of(2, (const int64_t[]){2, 3});
 * mg_tensor *x = mg_tensor_from_host(numbers, MG_F32, &shape, NULL);
 * if (!x) puts(mg_error_message());
 * \endcode */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device);
/* Copies the elements to dst in row-major order, after computing the value if need be. dst is the
 * caller's and has room for the element count times mg_dtype_size() bytes. Fails as mg_eval does.
 * \code
 * float numbers[6];
 * if (mg_tensor_read(x, numbers) == MG_OK) printf("%g %g\n", numbers[0], numbers[5]); // --> 1 6
 * \endcode */
mg_status mg_tensor_read(mg_tensor *t, void *dst);
/* The same with every element converted to double; dst has room for one double per element.
 * \code
 * double numbers[6]; // for any dtype
 * if (mg_tensor_read_double(x, numbers) == MG_OK) printf("%g\n", numbers[5]); // --> 6
 * \endcode */
mg_status mg_tensor_read_double(mg_tensor *t, double *dst);
/* Adds a reference to t and returns t.
 * \code
 * mg_tensor *kept = mg_tensor_retain(x); // now both references must be released
 * mg_tensor_release(kept);
 * \endcode */
mg_tensor *mg_tensor_retain(mg_tensor *t);
/* Gives up one reference; the last one frees the tensor. Accepts NULL. Safe from any thread.
 * \code
 * mg_tensor *negative = mg_apply(mg_op_find("neg"), &x, 1, NULL);
 * mg_tensor_release(negative); // x is still there
 * \endcode */
void mg_tensor_release(mg_tensor *t);

/* ---- ops ---- */

/* A row of the op table: constant, never freed. */
typedef struct mg_op mg_op;

/* The op of that name ("matmul", "add", ...), or NULL if there is none (no error is stored).
 * \code
 * printf("%d %d\n", mg_op_find("matmul") != NULL, mg_op_find("multiply") != NULL); // --> 1 0
 * \endcode */
const mg_op *mg_op_find(const char *name);
/* The result of an op on n inputs, as a lazy tensor: shapes and dtypes are checked here, nothing is
 * computed. `attrs` points to the op's attribute struct, which is copied; NULL means that every
 * option has its default. The inputs stay the caller's and are retained. Owned. NULL: MG_USAGE with
 * the op's name and the shapes, or MG_OOM.
 * \code
 * mg_tensor *sum = mg_apply(mg_op_find("sum"), &x, 1, NULL); // over all axes
 * double value;
 * if (sum && mg_tensor_read_double(sum, &value) == MG_OK) printf("%g\n", value); // --> 21
 * mg_tensor_release(sum);
 * \endcode */
mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs);
/* Computes the values of t[0 .. n-1] together, so that common parts are computed once. After a
 * failure it can be called again: MG_OOM, MG_DEVICE, MG_INTERRUPTED, or the status of a guard
 * (MG_DATA, MG_NONFINITE).
 * \code
 * mg_tensor *root = mg_apply(mg_op_find("sqrt"), &x, 1, NULL);
 * mg_tensor *both[] = {mg_apply(mg_op_find("sum"), &root, 1, NULL),
 *                      mg_apply(mg_op_find("max"), &root, 1, NULL)};
 * if (mg_eval(both, 2) != MG_OK) puts(mg_error_message()); // computes root once
 * mg_tensor_release(both[0]);
 * mg_tensor_release(both[1]);
 * mg_tensor_release(root);
 * \endcode */
mg_status mg_eval(mg_tensor *const *t, int n);
/* Differentiates y, a tensor of one number, with respect to wrt[0 .. n-1]. grads[i] is set to an
 * owned lazy tensor of the shape of wrt[i], or to NULL if y does not depend on it. On failure all
 * of grads is NULL: MG_USAGE if y is not one floating point number, MG_UNSUPPORTED if a path leads
 * through an op without a gradient, MG_OOM.
 * \code
 * mg_tensor *square = mg_apply(mg_op_find("square"), &x, 1, NULL);
 * mg_tensor *y = mg_apply(mg_op_find("sum"), &square, 1, NULL), *dx = NULL;
 * double slope[6];
 * if (mg_grad(y, &x, 1, &dx) == MG_OK && mg_tensor_read_double(dx, slope) == MG_OK)
 *     printf("%g %g\n", slope[0], slope[5]); // --> 2 12
 * mg_tensor_release(dx);
 * mg_tensor_release(y);
 * mg_tensor_release(square);
 * \endcode */
mg_status mg_grad(mg_tensor *y, mg_tensor *const *wrt, int n, mg_tensor **grads);
/* Tensors that are evaluated lose their history, and with it their gradient, except between this
 * call and mg_recording_end. They nest, per thread.
 * \code
 * mg_recording_begin();
 * mg_tensor *y = mg_apply(mg_op_find("sum"), &x, 1, NULL), *dx = NULL;
 * double value;
 * mg_tensor_read_double(y, &value); // computes y, whose history is kept
 * puts(mg_status_name(mg_grad(y, &x, 1, &dx))); // --> ok
 * printf("%d\n", dx != NULL); // --> 1
 * mg_recording_end();
 * mg_tensor_release(dx);
 * mg_tensor_release(y);
 * \endcode */
void mg_recording_begin(void);
/* Ends what mg_recording_begin has begun.
 * \code
 * mg_recording_begin();
 * mg_recording_begin();
 * mg_recording_end(); // still recording
 * mg_recording_end();
 * \endcode */
void mg_recording_end(void);

/* ---- the running program ---- */

/* Asks the running computation to stop: its next step, or the next call from Lua, fails with
 * MG_INTERRUPTED. Nothing of an unfinished step is committed, and everything stays usable. May be
 * called from any thread and from a signal handler.
 * \code
 * static void on_signal(int number) {
 *     (void)number;
 *     mg_interrupt();
 * }
 * signal(SIGINT, on_signal); // Ctrl-C
 * raise(SIGINT);
 * mg_tensor *sum = mg_apply(mg_op_find("sum"), &x, 1, NULL);
 * puts(mg_status_name(mg_eval(&sum, 1))); // --> interrupted
 * puts(mg_status_name(mg_eval(&sum, 1))); // --> ok
 * mg_tensor_release(sum);
 * \endcode */
void mg_interrupt(void);
/* Asks a training that saves checkpoints (BackupAndRestore, fit's resume) to save after its current
 * step and to stop with an "interrupted" error; `reason` is a signal's number or another that is
 * not 0. False if no such training runs. May be called from any thread and from a signal handler.
 * \code
 * printf("%d\n", mg_stop_request(15)); // no training runs --> 0
 * \endcode */
bool mg_stop_request(int reason);
/* Sends log lines (chosen by the environment variable MGPU_LOG) to `sink`, one line a call without
 * its end, from whatever thread logs; NULL: to stderr. Call it before other threads use the
 * library. `line` is borrowed for the call. `context` is passed on and stays the caller's.
 * \code
 * static void to_file(const char *line, void *file) {
 *     fprintf(file, "mgpu: %s\n", line);
 * }
 * mg_log_set_sink(to_file, stdout);
 * \endcode */
void mg_log_set_sink(void (*sink)(const char *line, void *context), void *context);

/* ---- Lua (libmgpu-lua and mgpu/core.so only) ---- */

struct lua_State;
/* Opens the module mgpu as `require "mgpu"` does: pushes its table, returns 1, and puts the front
 * end's Lua files in front of package.path. The folder that holds lua/ and models/ is looked for
 * from where the library lies, unless the string LUA_REGISTRYINDEX["mgpu.root"] or the environment
 * variable MGPU_ROOT names it. L needs the standard libraries (luaL_openlibs). Raises a Lua error
 * on failure: call it with lua_cpcall or lua_pcall.
 * \code
 * lua_State *L = luaL_newstate();
 * luaL_openlibs(L);
 * lua_pushcfunction(L, luaopen_mgpu);
 * if (lua_pcall(L, 0, 1, 0) != 0) puts(lua_tostring(L, -1));
 * lua_setglobal(L, "mgpu");
 * const char *script = "print(mgpu.ones({2, 3}):sum():item())";
 * if (luaL_dostring(L, script) != 0) puts(lua_tostring(L, -1)); // --> 6
 * lua_close(L);
 * \endcode */
int luaopen_mgpu(struct lua_State *L);
/* Opens only the module mgpu.core, for hosts that set package.path themselves: pushes its table and
 * returns 1. Register it as package.preload["mgpu.core"].
 * \code
 * lua_State *L = luaL_newstate();
 * luaL_openlibs(L);
 * lua_getfield(L, LUA_GLOBALSINDEX, "package");
 * lua_getfield(L, -1, "preload");
 * lua_pushcfunction(L, luaopen_mgpu_core);
 * lua_setfield(L, -2, "mgpu.core");
 * const char *script = "print(#require('mgpu.core').op_rows() > 100)";
 * if (luaL_dostring(L, script) != 0) puts(lua_tostring(L, -1)); // --> true
 * lua_close(L);
 * \endcode */
int luaopen_mgpu_core(struct lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
