/* Programs of host devices: a list of kernel calls, made from a device's kernel list.
 *
 * For each step the first kernel that accepts it is taken; none accepts -> the reference kernel.
 * Kernels may ask for layouts other than row-major; the compiler inserts the changes, each at most
 * once per value, and gives every value its place in the arena by liveness. */
#ifndef MG_DEVICE_PROGRAM_H
#define MG_DEVICE_PROGRAM_H

#include "device/device.h"

enum { MG_MAX_LAUNCH = 64 }; /* calls that run as one */

#define MG_ROW_MAJOR                                                                               \
    0 /* the layout every external value has; other numbers are the device's own, and              \
          take as many bytes */

typedef struct mg_port {
    const mg_value *value;
    int layout;
} mg_port;

typedef struct mg_kernel_plan {
    const mg_step *step; /* NULL for a reorder, which has one input and one output port */
    mg_port *in; /* layouts as the values lie now (see row_major); prepare may ask for others */
    mg_port
        *out; /* row-major; prepare may choose others (ignored for external values: reordered) */
    size_t scratch; /* bytes wanted during the call, aligned as the arena is, up to 256 */
    void *state;    /* the kernel's own, from mg_alloc or anything `release` understands */
    mg_device *device;
    bool out_external; /* an output is external: it should be written row-major */
    /* Bit i: the result may be written over input i where nobody reads that later. Groups, which
     * work element by element, may do that with any. */
    uint32_t overwrites;
} mg_kernel_plan;

typedef struct mg_call {
    const mg_kernel_plan *plan;
    void *const *in;
    void *const *out;
    void *scratch;
    mg_rng_state rng; /* of a draw: its key and ordinal (with the run's state where relative) */
    int64_t first;    /* likewise: where its first element stands in the whole draw */
} mg_call;

typedef struct mg_kernel {
    const char *op;   /* row name; "fused" for fused groups; NULL matches every op */
    const char *name; /* for MGPU_LOG=dispatch */
    const char *(*accepts)(const mg_kernel_plan *plan); /* NULL = yes, or the reason for a no */
    mg_status (*prepare)(mg_kernel_plan *plan);         /* may be NULL: all row-major, no state */
    mg_status (*run)(const mg_call *call);
    /* Calls that follow one another and touch nothing that another of them writes, as one: may be
     * NULL. The first has scratch for all, as much as `scratch_many` says. */
    mg_status (*run_many)(const mg_call *calls, int n);
    size_t (*scratch_many)(const mg_kernel_plan *const *plans, int n);
    bool batched_only; /* run_many is for calls of steps that are alike (mg_step.batch_count):
                        others may run side by side */
    void (*release)(void *state); /* may be NULL */
    bool waits; /* for what was started before it: its calls cannot be recorded for later */
} mg_kernel;

typedef struct mg_kernel_set {
    const mg_kernel *const *kernels; /* NULL-terminated, fastest first per op */
    /* Prepares a change of layout as a kernel plan (in[0] and out[0] given); NULL if only row-major
     * exists. */
    const mg_kernel *reorder;
    /* Kernels are offered their inputs row-major, however they lie: only one that knows another
     * layout has to ask for it. */
    bool row_major;
    const mg_kernel *last_resort; /* takes what no other takes; NULL: the reference kernel */
    /* Memory of the device to memory of the device; NULL: memcpy. */
    mg_status (*copy)(mg_device *d, void *dst, const void *src, size_t bytes);
} mg_kernel_set;

mg_status mg_program_compile(mg_device *d, const mg_kernel_set *set, const mg_kernel_graph *graph,
                             mg_program **program);
mg_status mg_program_run(mg_program *p, const mg_run *run);
/* The same in pieces, for devices that record calls: the calls of a phase are [first, last); those
 * up to the next one that waits (a collective among devices, or a kernel that says so) can be
 * recorded; `after` is the call behind it. None waits: both are last. */
void mg_program_phase(const mg_program *p, mg_phase phase, int *first, int *last);
int mg_program_next_wait(const mg_program *p, const mg_run *run, int first, int last, int *after);
mg_status mg_program_run_calls(mg_program *p, const mg_run *run, int first, int last);
/* While the device records: nothing is done yet. */
mg_status mg_program_record_calls(mg_program *p, const mg_run *run, int first, int last);
typedef struct mg_range { /* bytes that a call reads or writes */
    const char *begin, *end;
    bool written;
} mg_range;
/* What call i, with those that run together with it, touches in a run: at most `most` ranges, or -1
 * if there are more. `after` is the call behind it. */
int mg_program_touches(const mg_program *p, const mg_run *run, int i, mg_range *ranges, int most,
                       int *after);
/* What calls that draw numbers which depend on mg_run.rng read, among the ranges. */
extern const char mg_program_rng;
/* Whether a call of the phase draws random numbers that depend on mg_run.rng. */
bool mg_program_draws(const mg_program *p, mg_phase phase);
void mg_program_release(mg_program *p);
size_t mg_program_arena_bytes(const mg_program *p);

/* The reference kernel as a kernel of last resort. */
extern const mg_kernel mg_reference_kernel;

#endif
