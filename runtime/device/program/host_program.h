/* The data structures of a host program, for the files of this folder: calls, and the slots of
 * their operands. program.h explains how they are made. */
#ifndef MG_DEVICE_PROGRAM_HOST_PROGRAM_H
#define MG_DEVICE_PROGRAM_HOST_PROGRAM_H

#include "device/program/program.h"

enum {
    MG_NO_SLOT = -1,
    /* The maximum number of operands of all calls of one launch. */
    MG_MOST_POINTERS = MG_MAX_LAUNCH * (MG_FUSE_MAX_INPUTS + MG_FUSE_MAX_OUTPUTS)
};

/* A piece of storage: the memory of an external value, a block of the arena, or a part of another
 * slot. Liveness is kept for whole slots only: a part lives as long as the slot around it. */
typedef struct mg_slot {
    mg_block block;   /* size; life span in call numbers; offset in the arena or in mg_run.kept */
    bool fixed;       /* made by a call of MG_PREPARE */
    bool kept;        /* ... and read by later ones: it lies in mg_run.kept */
    int external;     /* the external value whose memory this is, or MG_NO_SLOT */
    int inside;       /* the whole slot that this is a part of, or MG_NO_SLOT */
    size_t offset;    /* in that slot, bytes */
    int pending_uses; /* while compiling: steps that will still read it. Slots of reordered copies
                         are not counted and hold a large number: they are never taken over. */
} mg_slot;

typedef struct mg_program_call {
    const mg_kernel *kernel;
    mg_kernel_plan plan;
    int launch_count; /* on the first call of a launch: its calls; others are skipped */
    int *in, *out;    /* slots of the operands; one allocation with the ports, freed as plan.in */
    int n_in, n_out;
    int scratch;        /* slot, or MG_NO_SLOT */
    bool fixed;         /* of MG_PREPARE */
    float flops, bytes; /* of the launch that begins here: estimates (device/work.h) */
} mg_program_call;

struct mg_program {
    mg_device *device; /* the device it was compiled for */
    const mg_kernel_set *set;
    mg_program_call *calls; /* the first n_fixed: MG_PREPARE; from n_compute on: the commit phase */
    int n_calls, n_fixed, n_compute, calls_capacity;
    const mg_step *steps; /* the kernel graph's, which are borrowed, or `merged` */
    mg_step *merged;      /* what mg_kernel_set.merge has made of them; owned */
    mg_slot *slots;
    int n_slots, slots_capacity;
    size_t arena_bytes, kept_bytes;
};

/* Frees what a call owns. */
void mg_program_drop_call(mg_program_call *k);
/* Adds a slot of this size; `external`: see mg_slot. MG_OOM. */
mg_status mg_program_add_slot(mg_program *p, size_t bytes, int external, int *index);
/* The whole slot that a slot is a part of, or the slot itself. */
static inline int mg_program_whole_slot(const mg_program *p, int index) {
    return p->slots[index].inside >= 0 ? p->slots[index].inside : index;
}
/* choose_kernel.c: sets k->kernel and prepares it, for the step and values of k->plan. */
mg_status mg_program_choose_kernel(const mg_program *p, mg_program_call *k);
/* fixed.c: puts the calls of MG_PREPARE first, and sets the life spans of all slots. MG_OOM. */
mg_status mg_program_order_calls(mg_program *p);
/* fixed.c: gives the slots that are kept their places. */
void mg_program_keep_slots(mg_program *p);
/* launches.c: sets launch_count of all calls, and extends life spans to whole launches. */
mg_status mg_program_make_launches(mg_program *p);
/* launches.c: for MGPU_LOG=launches. */
void mg_program_log_launches(const mg_program *p);

#endif
