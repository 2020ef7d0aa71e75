/* The passes from a step's IR to the kernel graph that a device compiles, in the order they run.
 *
 *   partition    partition.c  on several devices: the IR of one device, with its collectives
 *   simplify     simplify.c   constants folded, equal nodes merged, bias and relu into epilogues;
 *                             changes no value
 *   fold_pads    fold_pad.c   zeros around images into the padding of convolutions
 *   fold_norms   fold_norm.c  batch normalisation into neighbouring products and convolutions;
 *                             rounds differently, so it depends on the precision setting
 *   simplify                  again, if fold_norms has changed anything
 *   dedup        program_dedup.c  parts with equal IRs share one program from here on
 *   fuse         fuse.c       chains of element-wise nodes become groups
 *   schedule     schedule.c   the order of the steps: compute phase, then commit phase
 *   lower        lower.c      numbered values and steps
 *
 * The bodies of loops go through the same passes (loop_ir.c makes their IRs, and lower.c calls
 * mg_passes_lower for them).
 *
 * plan.c runs partition and dedup, which are about several devices, and calls this file for the
 * rest. grad.c is no pass: it adds ordinary tensors before the IR is made. */
#include "graph/ir.h"

/* The bodies of loops are rewritten last, when it is known which of their results are read. */
mg_status mg_passes_rewrite(mg_ir *ir) {
    bool changed;
    MG_TRY(mg_simplify(ir));
    MG_TRY(mg_fold_pads(ir));
    MG_TRY(mg_fold_norms(ir, &changed));
    if (changed) MG_TRY(mg_simplify(ir));
    MG_TRY(mg_ir_prune_loops(ir));
    for (int i = 0; i < ir->n; i++)
        if (ir->nodes[i].loop) MG_TRY(mg_passes_rewrite(&ir->nodes[i].loop->body));
    return MG_OK;
}

mg_status mg_passes_lower(mg_ir *ir, bool fuse, mg_lowered *lowered) {
    mg_groups groups;
    mg_schedule order;
    MG_TRY(mg_fuse(ir, fuse, &groups));
    MG_TRY(mg_schedule_order(ir, &groups, &order));
    return mg_lower(ir, &groups, &order, fuse, lowered);
}
