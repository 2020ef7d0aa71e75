/* What a program is made of: for compile.c, which makes it, and program.c, which runs it.
 *
 * A slot is a piece of storage: an external value's memory, a block of the arena, or a part of
 * another slot, whose life is then that one's. What differs
 * from run to run, and from device to device, comes with the run: a program is not changed by
 * running it. */
#ifndef MG_DEVICE_PROGRAM_CALLS_H
#define MG_DEVICE_PROGRAM_CALLS_H

#include "device/program/arena.h"
#include "device/program/program.h"

enum {
    MG_NO_SLOT = -1,
    MG_MOST_POINTERS = MG_MAX_LAUNCH * (MG_FUSE_MAX_INPUTS + MG_FUSE_MAX_OUTPUTS) /* of a call */
};

typedef struct mg_slot {
    mg_block block;   /* life span in calls; offset in the arena */
    int external;     /* or MG_NO_SLOT */
    int inside;       /* the slot that it is a part of, which is no part itself; or MG_NO_SLOT */
    size_t offset;    /* there */
    int pending_uses; /* steps still to read it; what is not counted never dies early */
} mg_slot;

typedef struct mg_program_call {
    const mg_kernel *kernel;
    mg_kernel_plan plan;
    int launch_count;                    /* calls from this one on that run as one */
    int *in, *out, n_in, n_out, scratch; /* slots; ports and lists lie in one block, plan.in */
} mg_program_call;

struct mg_program {
    mg_device *device;
    const mg_kernel_set *set;
    mg_program_call *calls;
    int n_calls, n_compute, calls_capacity;
    const mg_step *steps; /* of the work */
    mg_slot *slots;
    int n_slots, slots_capacity;
    size_t arena_bytes;
};

/* Frees what a call owns. */
void mg_program_drop_call(mg_program_call *k);

#endif
