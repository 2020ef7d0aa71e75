/* Joining and leaving the world, and what its ranks agree on: see world.h. */
#include "world/world.h"
#include "core/alloc.h"
#include "core/fnv.h"
#include "core/plugin.h"
#include "core/threads.h"
#include "core/version.h"
#include "world/exchange.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    bool started;
    mg_launch launch;
    int rank, size;
    mg_hub *hub;
    const mg_transport_api *api;
    mg_transport *transport;
    char version[80];
    mg_channel channel; /* of mg_world_agree and the like */
    atomic_int alone;
    atomic_uint_fast64_t step; /* joint steps so far */
    uint32_t flags;            /* of all calls of mg_world_agree */
} world = {.size = 1};

/* ---- who is there ---- */

int mg_world_rank(void) {
    return world.rank;
}

int mg_world_size(void) {
    return world.size;
}

const mg_launch *mg_world_launch(void) {
    return &world.launch;
}

const mg_hub_member *mg_world_member(int rank) {
    return world.hub ? mg_hub_member_of(world.hub, rank) : NULL;
}

const char *mg_world_transport(void) {
    return world.version;
}

void mg_world_alone_begin(void) {
    atomic_fetch_add(&world.alone, 1);
}

void mg_world_alone_end(void) {
    atomic_fetch_sub(&world.alone, 1);
}

bool mg_world_is_joint(void) {
    return world.size > 1 && atomic_load(&world.alone) == 0;
}

/* ---- failures ---- */

const char *mg_world_over(void) {
    return world.hub ? mg_hub_over(world.hub) : NULL;
}

mg_status mg_world_check(void) {
    const char *why = mg_world_over();
    return why ? mg_fail(MG_COMM, "%s", why) : MG_OK;
}

void mg_world_at_step(void) {
    atomic_fetch_add(&world.step, 1);
    mg_world_at_op("the start of the step");
}

void mg_world_at_op(const char *op) {
    if (world.hub) mg_hub_at(world.hub, atomic_load(&world.step), op);
}

mg_status mg_world_check_left(void) {
    uint64_t step = 0;
    for (int r = 0; r < world.size && world.hub; r++) {
        if (!mg_hub_has_left(world.hub, r, &step)) continue;
        char sentence[MG_HOST_NAME + 200];
        const mg_hub_member *gone = mg_world_member(r);
        snprintf(
            sentence, sizeof sentence,
            "rank %d (host %s, pid %d) left the script after step %llu while others go on: all "
            "ranks must make the same steps",
            r, gone->host, gone->pid, (unsigned long long)step);
        mg_hub_end(world.hub, sentence);
        return mg_world_check();
    }
    return MG_OK;
}

mg_status mg_world_explain(void) {
    static const double LOOK = 0.005; /* seconds */
    char what[MG_ERROR_BYTES];
    if (!world.hub) return MG_COMM;
    snprintf(what, sizeof what, "%s", mg_error_message());
    const double until = mg_seconds() + mg_hub_silence(world.hub) + 1;
    while (mg_seconds() < until) {
        MG_TRY(mg_world_check());
        MG_TRY(mg_world_check_left());
        if (mg_interrupt_pending()) return mg_fail(MG_INTERRUPTED, "interrupted");
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK * 1e9)}, NULL);
    }
    mg_world_fail(what);
    return mg_world_check();
}

void mg_world_fail(const char *why) {
    char sentence[MG_ERROR_BYTES];
    const mg_hub_member *own = mg_world_member(world.rank);
    if (!own || mg_world_over()) return; /* the first failure is what others are told */
    snprintf(sentence, sizeof sentence, "rank %d (host %s, pid %d) failed: %s", world.rank,
             own->host, own->pid, why);
    mg_hub_end(world.hub, sentence);
}

/* ---- agreement ---- */

/* What each rank says when they meet. */
typedef struct meeting {
    int64_t place, number, random;
} meeting;

static const char *const place_names[] = {
    [MG_AT_NEW_STEP] = "a step that is new",
    [MG_AT_STEP] = "a step",
    [MG_AT_SEND] = "a callback or another result of rank 0",
    [MG_AT_EPOCH] = "the end of an epoch",
    [MG_AT_END] = "the end of its data or a barrier",
    [MG_AT_CALL] = "a call of fit, evaluate or predict",
    [MG_AT_VALUES] = "an exchange of weights or gradients",
};

/* Names the first difference between rank r and rank 0. */
static mg_status compare_meeting(const meeting *first, const meeting *other, int r) {
    if (other->place != first->place)
        return mg_fail(MG_USAGE,
                       "rank %d has come to %s, but rank 0 to %s: all ranks must make the same "
                       "steps, so their data must have equally many batches",
                       r, place_names[other->place], place_names[first->place]);
    if (other->number != first->number)
        return mg_fail(MG_USAGE,
                       "rank %d has come to another step than rank 0: all ranks must make the same "
                       "steps in the same order",
                       r);
    if (other->random != first->random)
        return mg_fail(MG_USAGE,
                       "the random numbers of rank %d are not those of rank 0: all ranks must have "
                       "the same seed and make the same draws in the same order, so none of them "
                       "may depend on mgpu.world()",
                       r);
    return MG_OK;
}

/* all[r] becomes what rank r gives, `bytes` long; this rank has put its own in place. endless:
 * waits as long as the others live. */
static mg_status gather(void *all, size_t bytes, bool endless) {
    size_t *each = mg_alloc((size_t)world.size * sizeof *each);
    if (!each) return MG_OOM;
    for (int r = 0; r < world.size; r++) each[r] = bytes;
    const uint32_t tag = mg_channel_tag(&world.channel);
    const mg_status status = endless ? mg_exchange_gather_when_ready(tag, all, each)
                                     : mg_exchange_gather(tag, all, each);
    mg_free(each);
    return status;
}

mg_status mg_world_meet(enum mg_world_place place, int64_t number, int64_t random, bool *differs) {
    *differs = false;
    if (world.size == 1) return MG_OK;
    MG_TRY(mg_world_check());
    meeting *all = mg_alloc((size_t)world.size * sizeof *all);
    if (!all) return MG_OOM;
    all[world.rank] = (meeting){place, number, random};
    const bool endless = place == MG_AT_SEND || place == MG_AT_EPOCH || place == MG_AT_END;
    mg_status status = gather(all, sizeof *all, endless);
    for (int r = 1; r < world.size && status == MG_OK; r++) {
        status = compare_meeting(&all[0], &all[r], r);
        *differs = status != MG_OK;
    }
    mg_free(all);
    return status;
}

mg_status mg_world_agree(uint32_t flags) {
    if (world.size == 1) return MG_OK;
    uint32_t *all = mg_alloc((size_t)world.size * sizeof *all);
    if (!all) return MG_OOM;
    all[world.rank] = flags;
    const mg_status status = gather(all, sizeof *all, false);
    for (int r = 0; r < world.size && status == MG_OK; r++) world.flags |= all[r];
    mg_free(all);
    return status;
}

uint32_t mg_world_flags(void) {
    return world.flags;
}

mg_status mg_world_broadcast(int root, void *data, size_t bytes) {
    if (world.size == 1) return MG_OK;
    MG_TRY(mg_world_check());
    return mg_exchange_broadcast(mg_channel_tag(&world.channel), root, data, bytes);
}

mg_status mg_world_gather(int64_t own, int64_t *all) {
    all[world.rank] = own;
    if (world.size == 1) return MG_OK;
    MG_TRY(mg_world_check());
    return gather(all, sizeof *all, false);
}

mg_status mg_world_gather_lists(void *all, const size_t *bytes) {
    if (world.size == 1) return MG_OK;
    MG_TRY(mg_world_check());
    return mg_exchange_gather(mg_channel_tag(&world.channel), all, bytes);
}

mg_status mg_world_measure_link(int a, int b, size_t bytes, int rounds, double *seconds) {
    MG_TRY(mg_exchange_bounce(mg_channel_tag(&world.channel), a, b, bytes, rounds, seconds));
    return mg_exchange_broadcast(mg_channel_tag(&world.channel), a, seconds, sizeof *seconds);
}

mg_status mg_world_measure_sum(int64_t count, int rounds, double *seconds) {
    float *in = mg_alloc_zero((size_t)count * sizeof *in),
          *out = mg_alloc((size_t)count * sizeof *out);
    mg_status status = in && out ? MG_OK : MG_OOM;
    const double start = mg_seconds();
    for (int i = 0; i < rounds && status == MG_OK; i++)
        status = mg_exchange_reduce(mg_channel_tag(&world.channel), in, out, count, MG_F32,
                                    MG_REDUCE_SUM, -1);
    *seconds = (mg_seconds() - start) / rounds;
    mg_free(in);
    mg_free(out);
    return status;
}

/* ---- joining ---- */

/* For mg_transport_start. */
static mg_status put(void *context, const char *key, const void *data, size_t bytes) {
    return mg_hub_put(context, key, data, bytes);
}

static mg_status get(void *context, const char *key, void **data, size_t *bytes) {
    return mg_hub_get(context, key, mg_deadline(), data, bytes);
}

static mg_status find_transport(void) {
    const char *name = world.launch.transport, *why = NULL;
    const mg_transport_api *(*plugin)(void) = NULL;
    *(void **)&plugin = mg_plugin_symbol(name, "mg_transport_plugin", &why);
    const mg_transport_api *found = plugin ? plugin() : NULL;
    if (found && found->size != sizeof *found) {
        why = "it was built against another version of the library";
        found = NULL;
    }
    world.api = found;
    if (found) return MG_OK;
    return mg_fail(MG_UNSUPPORTED,
                   "%s has started %d processes, which need mgpu-%s.so to exchange messages: %s; "
                   "`make` builds it where its library is installed (libucx-dev, libopenmpi-dev, "
                   "libmpich-dev). MGPU_TRANSPORT names another one, MGPU_LAUNCH=none runs each "
                   "process by itself",
                   world.launch.by, world.size, name, why);
}

/* Seconds to wait for the other processes: MGPU_JOIN, or 60, or one for each of more ranks, which
 * may share a few cores. */
static double join_patience(void) {
    const char *text = getenv("MGPU_JOIN");
    const double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : world.size > 60 ? world.size : 60;
}

static mg_status start_transport(void) {
    const mg_transport_start how = {.rank = world.rank,
                                    .size = world.size,
                                    .put = put,
                                    .get = get,
                                    .context = world.hub,
                                    .patience = join_patience()};
    world.transport = world.api->start(&how);
    if (!world.transport) return mg_error_code();
    snprintf(world.version, sizeof world.version, "%s", world.api->version(world.transport));
    mg_exchange_start(world.api, world.transport, world.rank, world.size);
    world.channel = mg_channel_open();
    return MG_OK;
}

/* For launchers that do not tell: by the names of the hosts. */
static void find_local_ranks(void) {
    mg_launch *l = &world.launch;
    const char *own = mg_world_member(world.rank)->host;
    if (l->local_size > 0) return;
    l->local_rank = 0;
    for (int r = 0; r < world.size; r++) {
        if (strcmp(mg_world_member(r)->host, own) != 0) continue;
        l->local_size++;
        l->local_rank += r < world.rank;
    }
}

static uint64_t hash_text(const char *text) {
    return mg_fnv(MG_FNV_START, text, strlen(text));
}

/* Ranks of one host with the same affinity share its cores: some launchers bind each to cores of
 * its own, others do not bind. */
static mg_status divide_cores(void) {
    int64_t *sets = mg_alloc((size_t)world.size * sizeof *sets);
    if (!sets) return MG_OOM;
    int same = 0;
    const mg_status status = mg_world_gather(
        (int64_t)mg_core_set_hash(hash_text(mg_world_member(world.rank)->host)), sets);
    for (int r = 0; r < world.size && status == MG_OK; r++) same += sets[r] == sets[world.rank];
    if (status == MG_OK) {
        mg_exchange_set_crowded(same > mg_core_count());
        mg_core_count_share(same);
    }
    mg_free(sets);
    return status;
}

static mg_status join_hub(int listener) {
    const mg_launch *l = &world.launch;
    world.hub = mg_hub_join(&(mg_hub_how){.rank = world.rank,
                                          .size = world.size,
                                          .listener = listener,
                                          .address = l->address,
                                          .port = l->port,
                                          .token = l->token,
                                          .patience = join_patience(),
                                          .version = hash_text(MG_VERSION " 1")});
    return world.hub ? MG_OK : mg_error_code();
}

/* The launcher tells where rank 0 is: the hub comes first, and the transport may use its store. */
static mg_status start_by_hub(void) {
    int listener = -1;
    if (world.rank == 0) MG_TRY(mg_hub_listen(&world.launch.port, &listener));
    MG_TRY(join_hub(listener));
    return start_transport();
}

/* What rank 0 tells the others where only the transport connects them. */
typedef struct hub_place {
    int port;
    char address[MG_HOST_NAME], token[MG_TOKEN];
} hub_place;

static mg_status make_place(hub_place *place, int *listener) {
    MG_TRY(mg_hub_listen(&place->port, listener));
    MG_TRY(mg_hub_addresses(place->address, sizeof place->address));
    return mg_launch_make_token(place->token);
}

static mg_status start_by_transport(void) {
    hub_place place = {0};
    int listener = -1;
    MG_TRY(start_transport());
    if (world.rank == 0) MG_TRY(make_place(&place, &listener));
    MG_TRY(mg_world_broadcast(0, &place, sizeof place));
    mg_launch *l = &world.launch;
    snprintf(l->address, sizeof l->address, "%s", place.address);
    snprintf(l->token, sizeof l->token, "%s", place.token);
    l->port = place.port;
    return join_hub(listener);
}

mg_status mg_world_start(void) {
    if (world.started) return MG_OK;
    MG_TRY(mg_launch_find(&world.launch));
    world.started = true;
    if (world.launch.size <= 1) return MG_OK;
    world.rank = world.launch.rank;
    world.size = world.launch.size;
    mg_status status = find_transport();
    if (status == MG_OK) status = world.api->own_addresses ? start_by_transport() : start_by_hub();
    if (status == MG_OK) {
        find_local_ranks();
        status = divide_cores();
    }
    if (status == MG_OK) return MG_OK;
    mg_world_stop(1);
    return status;
}

void mg_world_stop(int exit_status) {
    if (world.size == 1) return;
    const bool clean = exit_status == 0 && !mg_world_over();
    mg_hub *hub = world.hub;
    /* The hub first: those who still wait for a message of this rank learn that it leaves. */
    world.hub = NULL;
    mg_hub_leave(hub, exit_status);
    mg_exchange_stop(clean);
    world.transport = NULL;
    world.rank = 0;
    world.size = 1;
}
