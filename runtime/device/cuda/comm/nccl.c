/* Cuda devices as ranks of NCCL. NCCL itself is used by a separate plug-in (comm/nccl/plugin.c),
 * which does not depend on devices: it gets a stream and two callbacks for each device. */
#include "device/cuda/comm/comm.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/context/context.h"
#include "core/placement.h"
#include <stdlib.h>

/* The callbacks: make the device's context current; wait for its stream. */
static mg_status enter_device(void *device) {
    return mg_cuda_enter(device);
}

static mg_status sync_device(void *device) {
    return mg_cuda_finish(device, NULL);
}

/* NCCL refuses two ranks on one GPU. */
static bool share_a_gpu(const mg_device_team *team) {
    for (int i = 0; i < team->here; i++)
        for (int k = 0; k < i; k++)
            if (mg_cuda_of(team->devices[i])->gpu == mg_cuda_of(team->devices[k])->gpu) return true;
    return false;
}

/* Lets NCCL's kernels access the pools of other GPUs of this process directly. If that is refused,
 * NCCL must copy through its own buffers, because inside one process it uses the pointers of other
 * ranks directly. It reads this setting when it makes its first communicator. */
static mg_status open_pools(const mg_device_team *team) {
    bool all_open = true, open;
    for (int i = 0; i < team->here; i++)
        for (int k = 0; k < team->here; k++) {
            MG_TRY(mg_cuda_enable_peer(team->devices[i], team->devices[k], &open));
            all_open &= open;
        }
    if (!all_open) setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0);
    return MG_OK;
}

/* Passes NCCL the stream and the callbacks of each device of this process. `mark` is a byte of
 * device memory for its barrier. */
static mg_comm *join_team(const mg_comm_kind *nccl, const mg_device_team *team) {
    mg_comm_end ends[MG_MAX_DEVICES];
    for (int i = 0; i < team->here; i++) {
        const mg_cuda *s = team->devices[i]->state;
        ends[i] = (mg_comm_end){.device = team->devices[i],
                                .stream = s->stream,
                                .mark = (void *)(uintptr_t)(s->rng + sizeof(mg_rng_cell)),
                                .enter = enter_device,
                                .finish = sync_device};
    }
    return nccl->join(&(mg_comm_team){
        .n = team->n, .first = team->first, .here = team->here, .id = team->id, .ends = ends});
}

/* A missing NCCL is an error only for a team of several processes. */
mg_comm *mg_nccl_connect(const mg_device_team *team) {
    const bool apart = !share_a_gpu(team);
    if (!team->id && (!apart || team->n < 2)) return NULL;
    if (!apart) {
        mg_fail(MG_USAGE, "NCCL: each rank needs a GPU of its own");
        return NULL;
    }
    const mg_comm_kind *nccl = mg_comm_find("nccl");
    if (nccl && open_pools(team) != MG_OK) return NULL;
    mg_comm *comm = nccl ? join_team(nccl, team) : NULL;
    if (!comm && !team->id && mg_error_code() == MG_UNSUPPORTED) mg_error_clear();
    return comm;
}

/* One process makes the id, and all processes connect with it. */
mg_status mg_nccl_make_id(mg_comm_id *id) {
    const mg_comm_kind *nccl = mg_comm_find("nccl");
    return nccl ? nccl->make_id(id) : mg_error_code();
}
