/* Communicators among devices: the kind's own, the host's where all can see its memory, else one
 * that goes by way of the host.
 *
 * That last one serves any mixture: a rank whose memory is not the host's brings its operand to
 * the host, takes part in the local communicator there, and brings the result back. */
#include "core/alloc.h"
#include "core/placement.h"
#include "device/device.h"

typedef struct rank {
    mg_device *device;
    void *in, *out; /* on the host: of a rank whose memory is elsewhere */
    size_t in_bytes, out_bytes;
} rank;

typedef struct staged {
    mg_comm_over over;
    rank ranks[];
} staged;

static staged *staged_of(mg_comm *comm) {
    return (staged *)comm;
}

/* ---- the host's side of a rank ---- */

static mg_status make_room(void **data, size_t *size, size_t bytes) {
    if (*size >= bytes && *data) return MG_OK;
    mg_free(*data);
    *size = 0;
    *data = mg_alloc(bytes ? bytes : 1);
    if (!*data) return MG_OOM;
    *size = bytes;
    return MG_OK;
}

/* Where `in` can be read. */
static mg_status bring_in(rank *r, const void **in, size_t bytes) {
    if (r->device->api->host_memory) return MG_OK;
    MG_TRY(make_room(&r->in, &r->in_bytes, bytes));
    MG_TRY(r->device->api->copy_out(r->device, r->in, *in, bytes));
    *in = r->in;
    return MG_OK;
}

static mg_status room_for_out(rank *r, void **out, size_t bytes) {
    if (r->device->api->host_memory) return MG_OK;
    MG_TRY(make_room(&r->out, &r->out_bytes, bytes));
    *out = r->out;
    return MG_OK;
}

static mg_status bring_out(const rank *r, void *out, size_t bytes) {
    if (r->device->api->host_memory) return MG_OK;
    return r->device->api->copy_in(r->device, out, r->out, bytes);
}

/* ---- collectives ---- */

static mg_status staged_all_reduce(mg_comm *comm, int i, const void *in, void *out, int64_t count,
                                   mg_dtype dtype, int op) {
    const size_t bytes = (size_t)count * mg_dtype_size(dtype);
    mg_comm *host = staged_of(comm)->over.host;
    rank *r = &staged_of(comm)->ranks[i];
    void *to = out;
    MG_TRY(bring_in(r, &in, bytes));
    MG_TRY(room_for_out(r, &to, bytes));
    MG_TRY(host->api->all_reduce(host, i, in, to, count, dtype, op));
    return bring_out(r, out, bytes);
}

static mg_status staged_reduce(mg_comm *comm, int i, int root, const void *in, void *out,
                               int64_t count, mg_dtype dtype, int op) {
    const size_t bytes = (size_t)count * mg_dtype_size(dtype);
    mg_comm *host = staged_of(comm)->over.host;
    rank *r = &staged_of(comm)->ranks[i];
    void *to = out;
    MG_TRY(bring_in(r, &in, bytes));
    if (i == root) MG_TRY(room_for_out(r, &to, bytes));
    MG_TRY(host->api->reduce(host, i, root, in, to, count, dtype, op));
    return i == root ? bring_out(r, out, bytes) : MG_OK;
}

static mg_status staged_broadcast(mg_comm *comm, int i, int root, const void *in, void *out,
                                  int64_t bytes) {
    mg_comm *host = staged_of(comm)->over.host;
    rank *r = &staged_of(comm)->ranks[i];
    void *to = out;
    if (i == root) MG_TRY(bring_in(r, &in, (size_t)bytes));
    if (i != root) MG_TRY(room_for_out(r, &to, (size_t)bytes));
    MG_TRY(host->api->broadcast(host, i, root, in, to, bytes));
    return i != root ? bring_out(r, out, (size_t)bytes) : MG_OK;
}

static mg_status staged_all_gather(mg_comm *comm, int i, const void *in, void *out, int64_t outer,
                                   const int64_t *bytes) {
    mg_comm *host = staged_of(comm)->over.host;
    rank *r = &staged_of(comm)->ranks[i];
    void *to = out;
    int64_t sum = 0;
    for (int k = 0; k < comm->n; k++) sum += bytes[k];
    MG_TRY(bring_in(r, &in, (size_t)(outer * bytes[i])));
    MG_TRY(room_for_out(r, &to, (size_t)(outer * sum)));
    MG_TRY(host->api->all_gather(host, i, in, to, outer, bytes));
    return bring_out(r, out, (size_t)(outer * sum));
}

static mg_status staged_transfer(mg_comm *comm, int i, int from, int to, const void *in, void *out,
                                 int64_t bytes) {
    mg_comm *host = staged_of(comm)->over.host;
    rank *r = &staged_of(comm)->ranks[i];
    void *place = out;
    if (i == from) MG_TRY(bring_in(r, &in, (size_t)bytes));
    if (i == to) MG_TRY(room_for_out(r, &place, (size_t)bytes));
    MG_TRY(host->api->transfer(host, i, from, to, in, place, bytes));
    return i == to ? bring_out(r, out, (size_t)bytes) : MG_OK;
}

/* ---- life ---- */

static void staged_free(mg_comm *comm) {
    staged *c = staged_of(comm);
    for (int i = 0; i < comm->n; i++) {
        mg_free(c->ranks[i].in);
        mg_free(c->ranks[i].out);
    }
    mg_comm_over_clear(&c->over);
    mg_free(c);
}

static const mg_comm_api staged_api = {.size = sizeof(mg_comm_api),
                                       .kind = "staged",
                                       .all_reduce = staged_all_reduce,
                                       .reduce = staged_reduce,
                                       .broadcast = staged_broadcast,
                                       .all_gather = staged_all_gather,
                                       .barrier = mg_comm_over_barrier,
                                       .transfer = staged_transfer,
                                       .abort = mg_comm_over_abort,
                                       .reset = mg_comm_over_reset,
                                       .check = mg_comm_over_check,
                                       .free = staged_free};

static mg_comm *make_staged(mg_device *const *devices, int n) {
    staged *c = mg_alloc_zero(sizeof *c + (size_t)n * sizeof *c->ranks);
    if (!c) return NULL;
    if (mg_comm_over_set_up(&c->over, &staged_api, n) != MG_OK) {
        mg_free(c);
        return NULL;
    }
    for (int i = 0; i < n; i++) c->ranks[i].device = devices[i];
    return &c->over.comm;
}

mg_comm *mg_device_connect(mg_device *const *devices, int n) {
    bool all_see = true, alike = true;
    for (int i = 0; i < n; i++) {
        all_see = all_see && devices[i]->api->host_memory;
        alike = alike && devices[i]->api == devices[0]->api;
    }
    if (all_see) return mg_comm_local(n);
    if (alike && devices[0]->api->connect) {
        mg_error_clear();
        mg_comm *comm =
            devices[0]->api->connect(&(mg_device_team){.n = n, .here = n, .devices = devices});
        if (comm || mg_error_code() != MG_OK) return comm;
    }
    return make_staged(devices, n);
}

static mg_status refuse(const mg_device *d) {
    return mg_fail(MG_UNSUPPORTED, "%s devices do not work together over several processes",
                   d->api->kind);
}

mg_comm *mg_device_join(const mg_device_team *team) {
    const mg_device_api *api = team->devices[0]->api;
    for (int i = 0; i < team->here; i++)
        if (team->devices[i]->api != api || !api->make_id) {
            refuse(team->devices[i]);
            return NULL;
        }
    return api->connect(team);
}

mg_status mg_device_make_id(const mg_device *d, mg_comm_id *id) {
    return d->api->make_id ? d->api->make_id(id) : refuse(d);
}
