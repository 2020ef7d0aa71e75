/* Which launcher started this process: see launch.h.
 *
 * Each launcher is a row of a table: the variables that tell rank and size, and a function for what
 * is special about it. The first row whose variables are set is taken. */
#include "core/limits.h"
#include "world/launch.h"
#include "core/plugin.h"
#include "world/launch_source.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/random.h>

typedef struct launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size; /* names of variables; NULL: none tells */
    const char *needs;     /* a further variable that must be set; NULL: none */
    const char *transport; /* unless `finish` chooses another one */
    /* Instead of the variables: whether this launcher started the process; *why: a hint for
     * --doctor if it did not, though there are traces of it. */
    bool (*started)(const char **why);
    mg_status (*finish)(mg_launch *l); /* reads the rest; NULL: there is none */
} launcher;

/* ---- variables ---- */

const char *mg_launch_variable(const char *name) {
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

mg_status mg_launch_number(const char *name, int least, int most, int *number) {
    const char *text = mg_launch_variable(name);
    if (!text)
        return mg_fail(MG_USAGE,
                       "%s is not set, though other variables of its launcher are: set it, or "
                       "MGPU_LAUNCH=none to run one process alone",
                       name);
    char *end;
    const long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
    if (value < least || value > most || *end)
        return mg_fail(MG_USAGE,
                       "%s=%s: it must be a whole number from %d to %d: correct it, or set "
                       "MGPU_LAUNCH=none to run one process alone",
                       name, text, least, most);
    *number = (int)value;
    return MG_OK;
}

mg_status mg_launch_host(const char *host, const char *who, mg_launch *l) {
    if ((size_t)snprintf(l->address, sizeof l->address, "%s", host) < sizeof l->address)
        return MG_OK;
    return mg_fail(MG_USAGE, "%s: the host's name has more than %d characters", who,
                   MG_HOST_NAME - 1);
}

mg_status mg_launch_address(const char *text, const char *who, mg_launch *l) {
    char host[MG_HOST_NAME];
    const char *colon = strrchr(text, ':'), *start = text;
    char *end = NULL;
    const long port = colon && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : 0;
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n > 2 && *start == '[' && start[n - 1] == ']') start++, n -= 2;
    if (port < 1 || port > 65535 || *end || n == 0 || n >= sizeof host)
        return mg_fail(MG_USAGE, "%s=%s: it must be \"host:port\"", who, text);
    snprintf(host, sizeof host, "%.*s", (int)n, start);
    l->port = (int)port;
    return mg_launch_host(host, who, l);
}

void mg_launch_token(mg_launch *l, const char *token) {
    snprintf(l->token, sizeof l->token, "%s", token);
}

/* ---- transports ---- */

enum { MOST_TRANSPORTS = 16 };

typedef struct transport_names {
    char name[MOST_TRANSPORTS][64];
    const char *list[MOST_TRANSPORTS];
    int n;
} transport_names;

static void add_transport(void *context, const char *name) {
    transport_names *t = context;
    if (t->n == MOST_TRANSPORTS) return;
    snprintf(t->name[t->n], sizeof t->name[0], "%s", name);
    t->list[t->n] = t->name[t->n];
    t->n++;
}

static bool has_transport(const char *name) {
    transport_names t = {.n = 0};
    mg_plugin_each("mg_transport_plugin", add_transport, &t);
    for (int i = 0; i < t.n; i++)
        if (strcmp(t.name[i], name) == 0) return true;
    return false;
}

static void set_transport(mg_launch *l, const char *name) {
    snprintf(l->transport, sizeof l->transport, "%s", name);
}

/* An MPI library connects its processes by itself; others have to know where rank 0 is. */
static mg_status check_address(const mg_launch *l) {
    static const char *const mpi[] = {"openmpi", "mpich", "mpi_abi"};
    for (int i = 0; i < 3; i++)
        if (strcmp(l->transport, mpi[i]) == 0) return MG_OK;
    if (l->address[0] || l->size == 1) return MG_OK;
    return mg_fail(MG_USAGE,
                   "MGPU_TRANSPORT=%s: launcher %s does not tell where rank 0 is: set "
                   "MGPU_HUB=host:port too, for all ranks",
                   l->transport, l->by);
}

/* Takes the transport that MGPU_TRANSPORT names. */
static mg_status choose_transport(mg_launch *l) {
    const char *name = mg_launch_variable("MGPU_TRANSPORT");
    if (!name) return MG_OK;
    transport_names t = {.n = 0};
    mg_plugin_each("mg_transport_plugin", add_transport, &t);
    for (int i = 0; i < t.n; i++)
        if (strcmp(t.name[i], name) == 0 && strlen(name) < sizeof l->transport) {
            set_transport(l, name);
            return check_address(l);
        }
    return mg_fail(
        MG_USAGE, "MGPU_TRANSPORT=%s: there is no plug-in mgpu-%s.so for messages%s", name, name,
        t.n ? mg_name_hint(name, t.list, t.n, "transport") : "; this build has none at all");
}

/* ---- what is special about single launchers ---- */

/* TORCHELASTIC_USE_AGENT_STORE tells that torchrun itself listens on MASTER_PORT. Then it is the
 * next port: all ranks know it without asking, and it is likely to be free. */
static mg_status finish_torchrun(mg_launch *l) {
    const char *address = mg_launch_variable("MASTER_ADDR"),
               *store = mg_launch_variable("TORCHELASTIC_USE_AGENT_STORE"),
               *run = mg_launch_variable("TORCHELASTIC_RUN_ID");
    if (run && strcmp(run, "none") != 0) mg_launch_token(l, run);
    if (mg_launch_variable("MGPU_HUB")) return MG_OK;
    if (l->size == 1 && !address) address = "127.0.0.1";
    if (!address)
        return mg_fail(
            MG_USAGE,
            "RANK=%d and WORLD_SIZE=%d are set, but not MASTER_ADDR, the host of rank 0: "
            "set it, or MGPU_LAUNCH=none to run one process alone",
            l->rank, l->size);
    MG_TRY(mg_launch_host(address, "MASTER_ADDR", l));
    if (l->size == 1 && !mg_launch_variable("MASTER_PORT")) return MG_OK;
    MG_TRY(mg_launch_number("MASTER_PORT", 1, 65535, &l->port));
    if (store && strcasecmp(store, "true") == 0) l->port += l->port < 65535 ? 1 : -1;
    return MG_OK;
}

/* Processes that mgpulua --np started, or a user who set the variables by hand. */
static mg_status finish_own(mg_launch *l) {
    if (l->size == 1 || mg_launch_variable("MGPU_HUB")) return MG_OK;
    return mg_fail(MG_USAGE,
                   "MGPU_RANK=%d and MGPU_SIZE=%d are set, but not MGPU_HUB, the address of rank 0 "
                   "as \"host:port\": set it, or start the processes by mgpulua --np",
                   l->rank, l->size);
}

/* MPICH and all that have its binary interface; a build for the standard's interface does as
 * well. */
static mg_status finish_hydra(mg_launch *l) {
    if (!has_transport("mpich") && has_transport("mpi_abi")) set_transport(l, "mpi_abi");
    return MG_OK;
}

/* UCX needs nothing of the launcher; without it, MPI may work where srun was told --mpi=pmix. */
static mg_status finish_srun(mg_launch *l) {
    if (mg_launch_variable("PMIX_RANK") && !has_transport("ucx") && has_transport("openmpi"))
        set_transport(l, "openmpi");
    return mg_launch_srun(l);
}

/* The number of processes is known to the server of PMIx, which only a library can ask: so the user
 * has to set MGPU_SIZE. */
static mg_status finish_pmix(mg_launch *l) {
    const char *space = mg_launch_variable("PMIX_NAMESPACE");
    if (space) mg_launch_token(l, space);
    return MG_OK;
}

static const launcher launchers[] = {
    {"mgpulua", "MGPU_RANK", "MGPU_SIZE", "MGPU_LOCAL_RANK", "MGPU_LOCAL_SIZE", .transport = "ucx",
     .finish = finish_own},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", .transport = "ucx",
     .finish = finish_torchrun},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", .transport = "openmpi"},
    {"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     .needs = "MPI_LOCALNRANKS", .transport = "mpich", .finish = finish_hydra},
    {"srun", .transport = "ucx", .started = mg_launch_is_srun, .finish = finish_srun},
    {"pmi", "PMI_RANK", "PMI_SIZE", .transport = "mpich", .finish = finish_hydra},
    {"pmix", "PMIX_RANK", "MGPU_SIZE", .needs = "PMIX_NAMESPACE", .transport = "openmpi",
     .finish = finish_pmix},
    {"tf_config", .transport = "ucx", .started = mg_launch_is_tf_config,
     .finish = mg_launch_tf_config},
};
enum { N_LAUNCHERS = sizeof launchers / sizeof *launchers };

/* ---- reading a row ---- */

/* A rank without a size counts too, and becomes an error: otherwise n processes would each run
 * alone unnoticed. Not so for RANK and PMI_RANK, which other programs set for other purposes. */
static bool is_started(const launcher *a, const char **why) {
    if (a->started) return a->started(why);
    if (a->needs && !mg_launch_variable(a->needs)) return false;
    const bool rank = mg_launch_variable(a->rank), size = mg_launch_variable(a->size);
    if (strncmp(a->rank, "MGPU_", 5) == 0 || a->needs) return rank;
    return rank && size;
}

static mg_status read_variables(const launcher *a, mg_launch *l) {
    MG_TRY(mg_launch_number(a->rank, 0, INT_MAX, &l->rank));
    MG_TRY(mg_launch_number(a->size, 1, INT_MAX, &l->size));
    if (a->local_rank && mg_launch_variable(a->local_rank))
        MG_TRY(mg_launch_number(a->local_rank, 0, INT_MAX, &l->local_rank));
    if (a->local_size && mg_launch_variable(a->local_size))
        MG_TRY(mg_launch_number(a->local_size, 1, INT_MAX, &l->local_size));
    snprintf(l->seen, sizeof l->seen, "%s=%d of %s=%d", a->rank, l->rank, a->size, l->size);
    return MG_OK;
}

static mg_status check_places(const mg_launch *l) {
    if (l->rank >= l->size)
        return mg_fail(MG_USAGE,
                       "%s: the rank must be less than the number of processes: correct the "
                       "variables, or set MGPU_LAUNCH=none to run one process alone",
                       l->seen);
    if (l->local_size > l->size || (l->local_size && l->local_rank >= l->local_size))
        return mg_fail(MG_USAGE,
                       "%s: process %d of %d on this host contradicts that: correct the variables, "
                       "or set MGPU_LAUNCH=none to run one process alone",
                       l->seen, l->local_rank, l->local_size);
    return MG_OK;
}

/* What the user may set for any launcher. */
static mg_status read_overrides(mg_launch *l) {
    const char *hub = mg_launch_variable("MGPU_HUB"), *token = mg_launch_variable("MGPU_TOKEN");
    if (hub) MG_TRY(mg_launch_address(hub, "MGPU_HUB", l));
    if (token) {
        if (strlen(token) >= sizeof l->token)
            return mg_fail(MG_USAGE, "MGPU_TOKEN has more than %d characters", MG_TOKEN - 1);
        mg_launch_token(l, token);
    }
    return choose_transport(l);
}

static mg_status read_launcher(const launcher *a, mg_launch *l) {
    snprintf(l->by, sizeof l->by, "%s", a->name);
    set_transport(l, a->transport);
    l->local_rank = -1, l->local_size = 0;
    if (a->rank) MG_TRY(read_variables(a, l));
    if (a->finish) MG_TRY(a->finish(l));
    MG_TRY(check_places(l));
    return read_overrides(l);
}

/* ---- the choice ---- */

static mg_status find_forced(const char *name, mg_launch *l) {
    const char *names[N_LAUNCHERS + 1];
    if (strcmp(name, "none") == 0) {
        snprintf(l->seen, sizeof l->seen, "MGPU_LAUNCH=none");
        return MG_OK;
    }
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (strcmp(launchers[i].name, name) == 0) return read_launcher(&launchers[i], l);
        names[i] = launchers[i].name;
    }
    names[N_LAUNCHERS] = "none";
    return mg_fail(MG_USAGE, "MGPU_LAUNCH=%s names no launcher%s", name,
                   mg_name_hint(name, names, N_LAUNCHERS + 1, "launcher"));
}

mg_status mg_launch_find(mg_launch *launch) {
    *launch = (mg_launch){.by = "none", .size = 1, .local_size = 1};
    const char *forced = mg_launch_variable("MGPU_LAUNCH"), *why = NULL;
    if (forced) return find_forced(forced, launch);
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (is_started(&launchers[i], &why)) return read_launcher(&launchers[i], launch);
    snprintf(launch->seen, sizeof launch->seen, "%s", why ? why : "no variables of a launcher");
    return MG_OK;
}

mg_status mg_launch_make_token(char token[MG_TOKEN]) {
    unsigned char random[(MG_TOKEN - 1) / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return mg_fail(MG_IO, "the system gives no random numbers for a token: %s",
                       mg_reason(errno));
    for (size_t i = 0; i < sizeof random; i++) snprintf(token + 2 * i, 3, "%02x", random[i]);
    return MG_OK;
}
