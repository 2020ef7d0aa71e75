/* The common part of all communicators: the table of collectives, set-up, plug-ins, and forwarding
 * to a local communicator. */
#include "comm/comm.h"
#include "core/alloc.h"
#include "core/plugin.h"
#include "core/threads.h"

/* ---- the table: which ranks read and write how much ----
 *
 * Staging, counting and the programs of devices use this table. Implementations switch over the
 * kind only to execute it. */

typedef enum role { EVERY_RANK, THE_ROOT, ALL_BUT_THE_ROOT, THE_RECEIVER } role;
typedef enum amount {
    COUNT, /* the operand's count */
    BLOCK, /* outer times this rank's share: counts[rank] */
    WHOLE  /* outer times all shares */
} amount;

typedef struct side { /* the input or the output of a collective */
    role role;
    amount amount;
} side;

enum { REDUCES = 1, POINT_TO_POINT = 2 }; /* flags */

static const struct row {
    const char *name;
    side in, out;
    int flags;
} rows[MG_N_COLLECTIVES] = {
    [MG_NO_COLLECTIVE] = {"none", {EVERY_RANK, COUNT}, {EVERY_RANK, COUNT}, 0},
    [MG_ALL_REDUCE] = {"all_reduce", {EVERY_RANK, COUNT}, {EVERY_RANK, COUNT}, REDUCES},
    [MG_REDUCE] = {"reduce", {EVERY_RANK, COUNT}, {THE_ROOT, COUNT}, REDUCES},
    [MG_BROADCAST] = {"broadcast", {THE_ROOT, COUNT}, {ALL_BUT_THE_ROOT, COUNT}, 0},
    [MG_ALL_GATHER] = {"all_gather", {EVERY_RANK, BLOCK}, {EVERY_RANK, WHOLE}, 0},
    [MG_TRANSFER] = {"transfer", {THE_ROOT, COUNT}, {THE_RECEIVER, COUNT}, POINT_TO_POINT},
};

const char *mg_collective_name(mg_collective kind) {
    return rows[kind].name;
}

bool mg_collective_is_point_to_point(mg_collective kind) {
    return (rows[kind].flags & POINT_TO_POINT) != 0;
}

/* Whether `rank` has the role. */
static bool has_role(const mg_collective_call *x, role r, int rank) {
    switch (r) {
    case EVERY_RANK: return true;
    case THE_ROOT: return rank == x->root;
    case ALL_BUT_THE_ROOT: return rank != x->root;
    case THE_RECEIVER: return rank == x->to;
    }
    return false;
}

/* Bytes of operand i that `rank` of n has on this side of the call: 0 for ranks without that role.
 */
static size_t side_bytes(const mg_collective_call *x, int i, const side *s, int rank, int n) {
    int64_t elements = x->operands[i].count;
    if (!has_role(x, s->role, rank)) return 0;
    if (s->amount == BLOCK) elements = x->outer * x->counts[rank];
    if (s->amount == WHOLE) {
        elements = 0;
        for (int k = 0; k < n; k++) elements += x->outer * x->counts[k];
    }
    return (size_t)elements * mg_dtype_size(x->dtype);
}

bool mg_collective_has_input(const mg_collective_call *x, int rank) {
    return has_role(x, rows[x->kind].in.role, rank);
}

bool mg_collective_has_output(const mg_collective_call *x, int rank) {
    return has_role(x, rows[x->kind].out.role, rank);
}

size_t mg_collective_reads(const mg_collective_call *x, int i, int rank, int n) {
    return side_bytes(x, i, &rows[x->kind].in, rank, n);
}

size_t mg_collective_writes(const mg_collective_call *x, int i, int rank, int n) {
    return side_bytes(x, i, &rows[x->kind].out, rank, n);
}

/* ---- set-up, counters, plug-ins ---- */

mg_status mg_comm_set_up(mg_comm *c, const mg_comm_api *api, int n) {
    c->api = api;
    c->n = n;
    c->deadline = mg_deadline();
    c->bytes_moved = mg_alloc_zero((size_t)n * sizeof *c->bytes_moved);
    c->waited = mg_alloc_zero((size_t)n * sizeof *c->waited);
    c->busy = mg_alloc_zero((size_t)n * sizeof *c->busy);
    c->beside = mg_alloc_zero((size_t)n * sizeof *c->beside);
    c->names = mg_alloc_zero((size_t)n * sizeof *c->names);
    return c->bytes_moved && c->waited && c->busy && c->beside && c->names ? MG_OK : MG_OOM;
}

void mg_comm_clear(mg_comm *c) {
    mg_free(c->bytes_moved);
    mg_free(c->waited);
    mg_free(c->busy);
    mg_free(c->beside);
    mg_free(c->names);
}

/* A rank whose own input is part of its result, as in all_gather, does not fetch that part. */
void mg_comm_count_moved(mg_comm *c, int rank, const mg_collective_call *x) {
    for (int i = 0; i < x->n_operands && !(rows[x->kind].flags & REDUCES); i++) {
        const size_t own = mg_collective_reads(x, i, rank, c->n);
        const size_t all = mg_collective_writes(x, i, rank, c->n);
        if (all > own) c->bytes_moved[rank] += (int64_t)(all - own);
    }
}

int64_t mg_comm_share(int n, int rank, int64_t count, int64_t unit, int64_t *last) {
    const int64_t share = (count / n + unit) / unit * unit;
    const int64_t first = rank * share < count ? rank * share : count;
    *last = first + share < count ? first + share : count;
    return first;
}

const mg_comm_kind *mg_comm_find(const char *kind) {
    const char *why = NULL;
    const mg_comm_kind *(*plugin)(void) = NULL;
    *(void **)&plugin = mg_plugin_symbol(kind, "mg_comm_plugin", &why);
    const mg_comm_kind *found = plugin ? plugin() : NULL;
    if (found && found->size == sizeof *found) return found;
    if (found) why = "it was built against another version of the library";
    mg_fail(MG_UNSUPPORTED, "there is no communicator \"%s\": mgpu-%s.so: %s", kind, kind, why);
    return NULL;
}

/* ---- communicators over a local one ----
 *
 * mg_comm_over is the first member of its owner's struct, so a mg_comm of such a communicator may
 * be cast to it. */

mg_status mg_comm_over_set_up(mg_comm_over *c, const mg_comm_api *api, int n) {
    mg_comm *host = mg_comm_local(n);
    if (!host) return MG_OOM;
    mg_comm_over_put(c, api, host);
    return MG_OK;
}

void mg_comm_over_put(mg_comm_over *c, const mg_comm_api *api, mg_comm *host) {
    c->host = host;
    c->comm = *host; /* the counters stay the local communicator's */
    c->comm.api = api;
}

/* Also frees the counters, which are the local communicator's. */
void mg_comm_over_clear(mg_comm_over *c) {
    if (c->host) c->host->api->free(c->host);
}

/* The local communicator in which the ranks meet. */
static mg_comm *host_of(mg_comm *c) {
    return ((mg_comm_over *)c)->host;
}

mg_status mg_comm_over_barrier(mg_comm *c, int rank) {
    return host_of(c)->api->barrier(host_of(c), rank);
}

void mg_comm_over_abort(mg_comm *c) {
    host_of(c)->api->abort(host_of(c));
}

void mg_comm_over_reset(mg_comm *c) {
    host_of(c)->api->reset(host_of(c));
}

mg_status mg_comm_over_check(mg_comm *c) {
    return host_of(c)->api->check(host_of(c));
}
