/* oneDNN in the runtime's conventions: its statuses become messages, and its handles have owners.
 * Without the library (MG_ONEDNN is not defined) the device has its own kernels for the same
 * steps. */
#ifndef MG_DEVICE_CPU_ONEDNN_ONEDNN_H
#define MG_DEVICE_CPU_ONEDNN_ONEDNN_H

#include "device/cpu/cpu.h"

#ifdef MG_ONEDNN

#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

/* The engine and stream of the process: opened with the first cpu device, closed with the last. */
mg_status mg_dnnl_open(void);
void mg_dnnl_close(void);
/* NULL if the environment variable MGPU_ONEDNN is "no": then no kernel of the library may accept.
 */
dnnl_engine_t mg_dnnl_engine(void);
/* Whether oneDNN's kernels are those for AVX2, or for AVX-512. Both are slower than our own kernels
 * in some cases. */
bool mg_dnnl_is_avx2(void);
bool mg_dnnl_is_avx512(void);
/* ", oneDNN 2.6.3", for the device's description; "" if the library is not used. */
const char *mg_dnnl_text(char *text, size_t size);

/* MG_OK, or MG_OOM / MG_DEVICE naming op, shapes and oneDNN's reason. */
mg_status mg_dnnl_check(dnnl_status_t status, const mg_kernel_plan *plan);

/* dnnl_success, or dnnl_out_of_memory if memory is too short for the code that the next call of
 * oneDNN may generate: it crashes where it cannot allocate that. `known`: whether such a call was
 * made before, after which there is nothing to check. */
dnnl_status_t mg_dnnl_room(atomic_bool *known);
/* dnnl_primitive_create, with room. */
mg_status mg_dnnl_create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t pd,
                         const mg_kernel_plan *plan);

/* A primitive and its memory objects; mg_dnnl_drop frees all of them. Several threads may run it at
 * the same time. */
enum { MG_DNNL_ARGUMENTS = 5 };
typedef struct mg_dnnl_call {
    dnnl_primitive_t primitive;
    int n;
    dnnl_exec_arg_t args[MG_DNNL_ARGUMENTS]; /* addresses are given at run time, in this order */
    atomic_bool taken;                       /* a run is using the memory objects in args */
    atomic_bool ran;                         /* its code has been generated */
} mg_dnnl_call;

mg_status mg_dnnl_add(mg_dnnl_call *c, int arg, const dnnl_memory_desc_t *md,
                      const mg_kernel_plan *plan);
mg_status mg_dnnl_run(mg_dnnl_call *c, void *const *addresses, const mg_kernel_plan *plan);
void mg_dnnl_drop(mg_dnnl_call *c);

/* A copy from one memory format to another. Its third argument is scratch memory, whose size is
 * added to plan->scratch. */
mg_status mg_dnnl_reorder(mg_dnnl_call *c, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, mg_kernel_plan *plan);

/* Attributes that make a primitive take its scratch memory as an argument. The caller destroys
 * them. */
mg_status mg_dnnl_attributes(dnnl_primitive_attr_t *attr, const mg_kernel_plan *plan);
/* Bytes of the scratch memory that a primitive wants, rounded up to whole cache lines. */
size_t mg_dnnl_scratch(const_dnnl_primitive_desc_t pd);

/* In the order of plugin.c's list. */
extern const mg_kernel mg_cpu_onednn_1x1_conv2d_grad_input, mg_cpu_onednn_1x1_conv2d_grad_weight,
    mg_cpu_onednn_conv2d, mg_cpu_onednn_conv2d_grad_input, mg_cpu_onednn_conv2d_grad_weight,
    mg_cpu_onednn_matmul;
#define MG_ONEDNN_KERNELS                                                                          \
    &mg_cpu_onednn_1x1_conv2d_grad_input, &mg_cpu_onednn_1x1_conv2d_grad_weight,                   \
        &mg_cpu_onednn_conv2d, &mg_cpu_onednn_conv2d_grad_input,                                   \
        &mg_cpu_onednn_conv2d_grad_weight, &mg_cpu_onednn_matmul,

#else

static inline mg_status mg_dnnl_open(void) {
    return MG_OK;
}
static inline void mg_dnnl_close(void) {}
static inline const char *mg_dnnl_text(char *text, size_t size) {
    (void)text, (void)size;
    return "";
}
#define MG_ONEDNN_KERNELS

#endif

#endif
