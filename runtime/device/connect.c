/* Choosing the communicator for a set of devices: the local one where the host sees all their
 * memory, else the kind's own where all are of one kind, else the staged one. Over several
 * processes likewise. */
#include "core/alloc.h"
#include "device/device.h"
#include "world/world.h"

/* Ranks whose memory the host sees take part with their own addresses; the others get buffers. host
 * (taken over; NULL: NULL): a communicator of host memory, in which the devices are the ranks from
 * `first` on. */
static mg_comm *stage(mg_comm *host, mg_device *const *devices, int first, int n) {
    mg_staged_rank *ranks = mg_alloc_zero((size_t)n * sizeof *ranks);
    if (!ranks && host) host->api->free(host);
    if (!ranks) return NULL;
    for (int i = 0; i < n; i++) {
        const mg_device_api *api = devices[i]->api;
        ranks[i].device = devices[i];
        if (api->host_memory) continue;
        ranks[i].copy_in = api->copy_in;
        ranks[i].copy_out = api->copy_out;
    }
    mg_comm *comm = mg_comm_staged_on(host, ranks, first, n);
    mg_free(ranks);
    return comm;
}

/* The communicator of host memory. */
static mg_comm *connect_local(mg_device *const *devices, int n) {
    mg_comm *comm = mg_comm_local(n);
    for (int i = 0; comm && i < n; i++) comm->names[i] = devices[i]->name;
    return comm;
}

mg_comm *mg_device_connect(mg_device *const *devices, int n) {
    const mg_device_api *api = devices[0]->api;
    bool host_sees_all = true, one_kind = true;
    for (int i = 0; i < n; i++) {
        host_sees_all = host_sees_all && devices[i]->api->host_memory;
        one_kind = one_kind && devices[i]->api == api;
    }
    if (host_sees_all) return connect_local(devices, n);
    if (one_kind && api->connect) {
        mg_error_clear();
        mg_comm *comm = api->connect(&(mg_device_team){.n = n, .here = n, .devices = devices});
        /* NULL without an error: the kind has none for these devices */
        if (comm || mg_error_code() != MG_OK) return comm;
    }
    return stage(connect_local(devices, n), devices, 0, n);
}

static mg_status refuse_processes(const mg_device *d) {
    return mg_fail(MG_UNSUPPORTED, "%s devices do not work together over several processes",
                   d->api->kind);
}

mg_comm *mg_device_join(const mg_device_team *team) {
    const mg_device_api *api = team->devices[0]->api;
    for (int i = 0; i < team->here; i++)
        if (team->devices[i]->api != api || !api->make_id) {
            refuse_processes(team->devices[i]);
            return NULL;
        }
    return api->connect(team);
}

/* The kind's own communicator over processes, as NCCL: rank 0 of the world makes its id. */
static mg_comm *join_by_id(mg_device *const *devices, const int64_t *here) {
    mg_device_team team = {.here = (int)here[mg_world_rank()], .devices = devices};
    mg_comm_id id = {{0}};
    for (int r = 0; r < mg_world_size(); r++) {
        if (r < mg_world_rank()) team.first += (int)here[r];
        team.n += (int)here[r];
    }
    if (mg_world_rank() == 0 && mg_device_make_id(devices[0], &id) != MG_OK) return NULL;
    if (mg_world_broadcast(0, &id, sizeof id) != MG_OK) return NULL;
    team.id = &id;
    return mg_device_join(&team);
}

/* Whether the kind's communicator cannot connect the ranks: some devices are of another kind or
 * have none, or ranks of a host share a card, which NCCL refuses. All ranks get the same answer. */
static mg_status must_stage(mg_device *const *devices, int n, bool *answer) {
    const mg_device_api *api = devices[0]->api;
    bool must = !api->make_id || mg_world_launch()->local_size > api->count();
    for (int i = 0; i < n; i++) must = must || devices[i]->api != api;
    int64_t *all = mg_alloc((size_t)mg_world_size() * sizeof *all);
    if (!all) return MG_OOM;
    const mg_status status = mg_world_gather(must, all);
    *answer = false;
    for (int r = 0; r < mg_world_size() && status == MG_OK; r++) *answer = *answer || all[r];
    mg_free(all);
    return status;
}

mg_comm *mg_device_connect_joint(mg_device *const *devices, const int64_t *here) {
    const int n = (int)here[mg_world_rank()];
    bool staged, host_sees_all = true;
    int first = 0;
    for (int r = 0; r < mg_world_rank(); r++) first += (int)here[r];
    for (int i = 0; i < n; i++) host_sees_all = host_sees_all && devices[i]->api->host_memory;
    if (must_stage(devices, n, &staged) != MG_OK) return NULL;
    if (!staged) return join_by_id(devices, here);
    mg_comm *world = mg_world_connect(here);
    return host_sees_all ? world : stage(world, devices, first, n);
}

mg_status mg_device_make_id(const mg_device *d, mg_comm_id *id) {
    return d->api->make_id ? d->api->make_id(id) : refuse_processes(d);
}
