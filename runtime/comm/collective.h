/* The kinds of collectives. The row of a collective op names its kind (mg_op.collective).
 *
 * To add one: a value here, its row in the table of comm.c, a case in each implementation's switch
 * (local.c, nccl/calls.c, device/cuda/comm/comm.c), and the row of its op. Staging through the
 * host, injected faults and the programs of devices need no change: they use the table. */
#ifndef MG_COMM_COLLECTIVE_H
#define MG_COMM_COLLECTIVE_H

typedef enum mg_collective {
    MG_NO_COLLECTIVE,
    MG_ALL_REDUCE, /* out = in of rank 0 op in of rank 1 op ..., in this order, on every rank */
    MG_REDUCE,     /* the same on rank `root` alone: elsewhere out is not touched */
    MG_BROADCAST,  /* the root's in, in everybody else's out; the root's out is not touched */
    MG_ALL_GATHER, /* the ranks' blocks one after another: out is `outer` times the blocks of rank
                      0, 1, ..., counts[k] elements from rank k, on every rank */
    MG_TRANSFER,   /* from the in of rank `root` to the out of rank `to`: only these two call it */
    MG_N_COLLECTIVES
} mg_collective;

#endif
