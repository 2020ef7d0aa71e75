/* Host programs: how a device that is driven call by call runs a kernel graph.
 *
 * A kernel graph (device/kernel_graph.h) is compiled once into a list of kernel calls and then run
 * many times. The device may merge steps first (mg_kernel_set.merge). Compiling then goes step by
 * step (compile.c):
 *
 *   1. Kernel (choose_kernel.c). The device's list is searched for the first kernel that accepts
 *      the step and prepares without MG_UNSUPPORTED. If there is none, the kernel of last resort
 *      takes it: for host devices the reference kernel (reference_kernel.c), which runs every op.
 *   2. Layout. A kernel may ask for inputs, and make outputs, in a layout of the device's own.
 *      Where a value does not lie in the wanted layout yet, a reorder call is inserted, once per
 *      value and layout. External values are always row-major.
 *   3. Slots. Every value in every layout has a slot, its place in memory. Reshapes and slices
 *      share the slot of their input where they can, and outputs reuse the slot of an input that
 *      is not read again.
 *   4. Launches (launches.c). Neighbouring calls of one kernel that are independent become one
 *      launch, such as the updates of all variables, or the all-reduces of a bucket.
 *   5. Arena (arena.c). Slots of temporaries get offsets in one block of memory: two may share
 *      bytes if no call needs both.
 *
 * In a frozen plan some values are fixed: they depend on nothing but constants and variables that
 * change rarely, the weights of a model that predicts. Calls whose inputs are all fixed come first
 * and belong to the phase MG_PREPARE, which the plan runs again only when a variable has changed.
 * What later calls read of their results lies in memory of its own, which the plan keeps. Reorders
 * of fixed values are such calls too, and so is packing: a kernel may ask for an operand that is
 * fixed in a form of its own (mg_kernel_plan.packer).
 *
 * Running (run.c) binds addresses and calls the kernels in order. A program does not change by
 * being run, so several devices and threads may run it at the same time. */
#ifndef MG_DEVICE_PROGRAM_PROGRAM_H
#define MG_DEVICE_PROGRAM_PROGRAM_H

#include "core/status.h"
#include "device/device.h"
#include <stddef.h>

enum { MG_MAX_LAUNCH = 64 }; /* calls in one launch, at most */

/* The layout of every external value. Other numbers are the device's own layouts, which need the
 * same number of bytes. */
#define MG_ROW_MAJOR 0
/* Of an input, set by `prepare`: the kernel takes the value in the layout that it was made in. */
#define MG_ANY_LAYOUT (-1)

typedef struct mg_port { /* an input or output of a call */
    const mg_value *value;
    int layout;
    bool fixed; /* of an input: the same in all runs until a variable changes */
} mg_port;

typedef struct mg_kernel_plan { /* what `prepare` knows about the call */
    const mg_step *step;        /* NULL for a reorder, which has one input and one output port */
    mg_port *in;    /* row-major; `prepare` may set other layouts, and the compiler inserts
                       reorders */
    mg_port *out;   /* row-major; `prepare` may set others (external values are reordered back) */
    size_t scratch; /* set by `prepare`: bytes of scratch memory needed during the call, aligned to
                       MG_ARENA_ALIGNMENT */
    void *state;    /* set by `prepare`: the kernel's own, freed by `release` */
    mg_device *device;
    /* Set by `prepare`, if input `packed` is fixed: a kernel that reads it as in[0] and writes
     * packed_bytes bytes to out[0], with the state of this call and packer_scratch bytes of
     * scratch. The call then gets the address of those bytes in the place of that input. */
    const struct mg_kernel *packer;
    int packed;
    size_t packed_bytes, packer_scratch;
    /* Set by `prepare`. Bit i: the output may be written over input i if no later call reads that
     * input. Fused groups, which work element by element, may overwrite any input. */
    uint32_t overwrites;
} mg_kernel_plan;

typedef struct mg_call { /* what a kernel is given to run */
    const mg_kernel_plan *plan;
    void *const *in; /* addresses */
    void *const *out;
    void *scratch;
    mg_rng_state rng; /* random ops: key and ordinal of the draw */
    int64_t first;    /* random ops: the position of the first element in the whole draw */
    /* The run whose stop a waiting kernel polls with mg_program_check_stop. NULL: the call must run
     * to its end, as in the commit phase. */
    const mg_run *stoppable;
} mg_call;

typedef struct mg_kernel {
    const char *op;   /* name of the op; "fused" for fused groups; NULL matches every op */
    const char *name; /* for MGPU_LOG=dispatch */
    /* Returns NULL if the kernel accepts the step, else the reason for the refusal. The function
     * may be NULL: accepts all. */
    const char *(*accepts)(const mg_kernel_plan *plan);
    mg_status (*prepare)(mg_kernel_plan *plan); /* NULL: all row-major, no state */
    mg_status (*run)(const mg_call *call);
    /* Runs n independent calls as one launch. The first call has scratch for all of them, of the
     * size that `scratch_many` returns. NULL: every call is its own launch. */
    mg_status (*run_many)(const mg_call *calls, int n);
    size_t (*scratch_many)(const mg_kernel_plan *const *plans, int n);
    /* run_many takes only the calls of a batch (mg_step.batch_count): independent calls outside a
     * batch are not joined, and may run in parallel. */
    bool batched_only;
    void (*release)(void *state); /* frees plan.state; NULL: there is nothing to free */
    bool waits; /* run waits for the device: its calls cannot be recorded and replayed */
} mg_kernel;

typedef struct mg_kernel_set {       /* the kernels of a device kind */
    const mg_kernel *const *kernels; /* NULL-terminated, the fastest first for each op */
    /* Makes a call that changes a value's layout, from that of in[0] to that of out[0]. NULL: the
     * kind has row-major only. */
    const mg_kernel *reorder;
    /* Runs the steps that no other kernel accepts. NULL: the reference kernel. */
    const mg_kernel *last_resort;
    /* Merges steps before kernels are chosen: *steps becomes a changed copy of the graph's steps,
     * one block from mg_alloc that the program will own, also on failure. A step that was merged
     * into another has no inputs and results left. NULL: the graph's steps are used. */
    mg_status (*merge)(mg_device *d, const mg_kernel_graph *graph, mg_step **steps);
    /* Copies between two places in the device's memory. NULL: memcpy. */
    mg_status (*copy)(mg_device *d, void *dst, const void *src, size_t bytes);
    /* For profiles of devices whose launches only enqueue work: notes on the device's own clock
     * that the work of this span begins; with NULL, that it has ended. False: it is not noted, and
     * there is no call with NULL. NULL: launches return when the work is done. */
    bool (*stamp)(mg_device *d, const mg_span *s);
    /* The kind's communicators write the result of an all-reduce over the operand, if no other step
     * reads that: so its memory is not given to a step beside a reduction that is under way. */
    bool reduces_in_place;
} mg_kernel_set;

mg_status mg_program_compile(mg_device *d, const mg_kernel_set *set, const mg_kernel_graph *graph,
                             mg_program **program);
/* Runs the calls of run->phase. */
mg_status mg_program_run(mg_program *p, const mg_run *run);
void mg_program_release(mg_program *p);
size_t mg_program_arena_bytes(const mg_program *p);
size_t mg_program_kept_bytes(const mg_program *p);

/* ---- running in pieces, for devices that record calls and replay the recording ---- */

/* The calls of a phase: [*first, *last). */
void mg_program_phase(const mg_program *p, mg_phase phase, int *first, int *last);
/* The first call in [first, last) that waits, for other devices' threads or for its own device, and
 * so cannot be recorded; *after is the first call after its launch. If none waits, both are
 * `last`. */
int mg_program_next_wait(const mg_program *p, const mg_run *run, int first, int last, int *after);
/* Whether the launch that starts at call i is a collective, among several devices. */
bool mg_program_is_collective(const mg_program *p, const mg_run *run, int i);
/* MG_INTERRUPTED if the run is to stop: for the compute phase, between two calls. */
mg_status mg_program_check_stop(const mg_run *run);
mg_status mg_program_run_calls(mg_program *p, const mg_run *run, int first, int last);
/* The same while the device records instead of running: no value changes yet. */
mg_status mg_program_record_calls(mg_program *p, const mg_run *run, int first, int last);

typedef struct mg_range { /* bytes that a call reads or writes */
    const char *begin, *end;
    bool written;
} mg_range;

/* Writes the memory that the launch of call i touches in a run to `ranges`, and returns their
 * number, or -1 if there are more than `most`. *after is the first call after the launch. Two
 * launches may run in any order if they have no common range, or if both only read their common
 * ranges. */
int mg_program_touches(const mg_program *p, const mg_run *run, int i, mg_range *ranges, int most,
                       int *after);
/* The range that stands for mg_run.rng: calls that draw from it read one byte here. */
extern const char mg_program_rng;
/* Whether a call of the phase draws random numbers that depend on mg_run.rng. */
bool mg_program_draws(const mg_program *p, mg_phase phase);

/* The kernel of last resort of host devices: any op, by the reference function of its row. */
extern const mg_kernel mg_reference_kernel;

/* ---- arena.c ----
 *
 * Arena planning: offsets for memory blocks of known life spans, such that blocks that are never
 * alive at the same time may share bytes. */

enum {
    MG_ARENA_ALIGNMENT = 256
}; /* bytes; the alignment that cuDNN and cuBLAS need for workspaces */

typedef struct mg_block {
    size_t bytes;
    int first, last; /* numbers of the first and last call that use it */
    size_t offset;   /* the result, a multiple of MG_ARENA_ALIGNMENT */
} mg_block;

/* Sets the offset of each block, so that blocks whose life spans overlap are disjoint, and *total
 * to the bytes of the arena. Sorts `blocks`. MG_OOM. */
mg_status mg_arena_assign(mg_block **blocks, int n, size_t *total);

/* ---- loop.c ----
 *
 * The call of a scan holds the program of one step, and runs it once per step. */

/* The kernel of every scan, on every device. Its calls are run by mg_loop_run. */
extern const mg_kernel mg_loop_kernel;
/* Sets scratch and state. */
mg_status mg_loop_prepare(const mg_kernel_set *set, mg_kernel_plan *plan);
mg_status mg_loop_run(const mg_call *call, const mg_run *run);
/* Whether a call of the loop's program waits (mg_kernel.waits). */
bool mg_loop_waits(const mg_kernel_plan *plan);

/* ---- collective.c ----
 *
 * Collectives in programs: calls that go to the communicator of the run instead of to a kernel of
 * the device. */

/* Marks the call of a collective in place of a kernel: a constant to compare with, without
 * functions. */
extern const mg_kernel mg_collective_kernel;
bool mg_is_collective(const mg_step *s);
/* The communicator of a collective step: that of its stage or, for transfers between stages, that
 * of all devices. NULL: the plan has one device. */
mg_comm *mg_collective_comm(const mg_step *s, const mg_run *run);
/* Runs one call, or the n calls of a bucket, over the run's communicator; without one the operands
 * are copied. Operands are row-major. */
mg_status mg_collective_run(const mg_kernel_set *set, const mg_call *calls, int n,
                            const mg_run *run);

#endif
