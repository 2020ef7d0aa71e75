/* Finding hosts and filling them with ranks: see placement.h. */
#include "program/launcher/placement.h"
#include "core/alloc.h"
#include "core/io.h"
#include "program/launcher/options.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGEST_FILE = 1 << 24 }; /* bytes */

/* ---- where hosts are named ---- */

static mg_status read_file(const char *path, char **text) {
    int64_t size;
    size_t got = 0;
    mg_file *f = mg_io_open(path);
    if (!f) return mg_error_code();
    mg_status status = mg_io_size(f, &size);
    if (status == MG_OK && size > LARGEST_FILE)
        status =
            mg_fail(MG_USAGE, "%s has %lld bytes: that is no list of hosts", path, (long long)size);
    if (status == MG_OK && !(*text = mg_alloc((size_t)size + 1))) status = MG_OOM;
    if (status == MG_OK) status = mg_io_read(f, *text, (size_t)size, &got);
    if (status == MG_OK) (*text)[got] = 0;
    mg_io_close(f);
    return status;
}

static mg_status read_host_file(const char *path, const char *who, mg_host_list *list) {
    char *text = NULL;
    mg_status status = read_file(path, &text);
    if (status == MG_OK) status = mg_host_list_lines(list, text, who);
    mg_free(text);
    return status;
}

/* Slots are the tasks that were asked for, or the CPUs. */
static mg_status read_slurm(const char *nodes, mg_host_list *list) {
    const char *names[] = {"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"};
    MG_TRY(mg_host_list_slurm(list, nodes, "SLURM_JOB_NODELIST"));
    for (int i = 0; i < 2; i++)
        if (getenv(names[i])) return mg_host_list_slurm_counts(list, getenv(names[i]), names[i]);
    for (int i = 0; i < list->n; i++) list->hosts[i].slots = 1;
    return MG_OK;
}

/* *who: what named the hosts, for messages; NULL: nothing did. */
static mg_status find_hosts(const mg_launch_options *o, mg_host_list *list, const char **who) {
    const char *slurm = getenv("SLURM_JOB_NODELIST"), *pbs = getenv("PBS_NODEFILE"),
               *uge = getenv("PE_HOSTFILE");
    if (o->hosts && o->host_file)
        return mg_fail(MG_USAGE, "-H and --hostfile cannot be combined: give one of them");
    *who = o->hosts       ? "-H"
           : o->host_file ? o->host_file
           : slurm        ? "SLURM_JOB_NODELIST"
           : pbs          ? "PBS_NODEFILE"
           : uge          ? "PE_HOSTFILE"
                          : NULL;
    if (o->hosts) return mg_host_list_given(list, o->hosts, *who);
    if (o->host_file) return read_host_file(o->host_file, *who, list);
    if (slurm) return read_slurm(slurm, list);
    return *who ? read_host_file(pbs ? pbs : uge, *who, list) : MG_OK;
}

/* ---- this host ---- */

/* Whether one of two names is the other without its domain. */
static bool is_same_name(const char *a, const char *b) {
    const size_t n = strcspn(a, "."), m = strcspn(b, ".");
    return n == m && strncasecmp(a, b, n) == 0 && (!a[n] || !b[n] || strcasecmp(a + n, b + n) == 0);
}

/* An address is this host's if a socket can be bound to it. Names are not looked up, since that
 * may take seconds for each. */
static bool is_here(const char *host) {
    char mine[MG_HOST_NAME] = "";
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    gethostname(mine, sizeof mine - 1);
    if (strcmp(host, "localhost") == 0) return true;
    const bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, host, &v6.sin6_addr) != 1) return is_same_name(host, mine);
    const int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool here = fd >= 0 && (is_v4 ? bind(fd, (struct sockaddr *)&v4, sizeof v4) == 0
                                        : bind(fd, (struct sockaddr *)&v6, sizeof v6) == 0);
    if (fd >= 0) close(fd);
    return here;
}

/* ---- filling ---- */

static mg_status check_slots(const mg_placement *p, const char *who, int slots) {
    if (p->np <= slots) return MG_OK;
    return mg_fail(
        MG_USAGE,
        "--np %d: the %d %s of %s %s %d %s: name more hosts or more slots, or start fewer "
        "processes",
        p->np, p->list.n, p->list.n == 1 ? "host" : "hosts", who, p->list.n == 1 ? "has" : "have",
        slots, slots == 1 ? "slot" : "slots");
}

/* Entries of a list that all mean this host are numbered through. */
static void number_here(mg_placement *p) {
    int here = 0;
    for (int i = 0; i < p->n; i++) here += p->places[i].host ? 0 : p->places[i].n;
    int next = 0;
    for (int i = 0; i < p->n; i++) {
        mg_place *place = &p->places[i];
        place->local_first = place->host ? 0 : next;
        place->local_size = place->host ? place->n : here;
        next += place->host ? 0 : place->n;
    }
}

static void fill(mg_placement *p) {
    for (int i = 0, rank = 0; i < p->list.n && rank < p->np; i++) {
        const mg_host *host = &p->list.hosts[i];
        const int left = p->np - rank, n = left < host->slots ? left : host->slots;
        if (n > 0)
            p->places[p->n++] =
                (mg_place){.host = is_here(host->name) ? NULL : host->name, .first = rank, .n = n};
        rank += n;
    }
    number_here(p);
}

/* --elastic */
static mg_status bound(const mg_launch_options *o, mg_placement *p) {
    int most;
    MG_TRY(mg_launcher_elastic(o->elastic, &p->least, &most));
    if (!o->elastic) return MG_OK;
    if (!o->np && (p->any_host || p->np > most)) p->np = most;
    if (p->np >= p->least && p->np <= most) return MG_OK;
    return mg_fail(MG_USAGE, "--elastic %s: it does not allow %d %s", o->elastic, p->np,
                   p->np == 1 ? "process" : "processes");
}

mg_status mg_placement_find(const mg_launch_options *o, mg_placement *p) {
    const char *who = "";
    MG_TRY(find_hosts(o, &p->list, &who));
    if (o->np) MG_TRY(mg_launcher_number("--np", o->np, MG_MOST_SLOTS, &p->np));
    p->any_host = !who || (!o->hosts && !o->host_file && p->list.n == 1);
    int64_t slots = 0;
    for (int i = 0; i < p->list.n; i++) slots += p->list.hosts[i].slots;
    if (slots > MG_MOST_SLOTS) slots = MG_MOST_SLOTS;
    if (!o->np) p->np = (int)slots;
    MG_TRY(bound(o, p));
    if (!p->np) return mg_fail(MG_USAGE, "--restart needs --np, -H or --hostfile");
    if (!p->any_host) MG_TRY(check_slots(p, who, (int)slots));
    const int n = p->any_host ? 1 : p->list.n;
    p->places = mg_alloc_zero((size_t)n * sizeof *p->places);
    if (!p->places) return MG_OOM;
    if (p->any_host) {
        p->places[p->n++] = (mg_place){.n = p->np, .local_size = p->np};
        return MG_OK;
    }
    fill(p);
    return MG_OK;
}

bool mg_placement_lose(mg_placement *p, const char *host) {
    int slots = 0;
    for (int i = 0; i < p->list.n; i++) {
        if (p->list.hosts[i].name == host) p->list.hosts[i].slots = 0;
        slots += p->list.hosts[i].slots;
    }
    if (!p->least || slots < p->least) return false;
    if (p->np > slots) p->np = slots;
    p->n = 0;
    fill(p);
    return true;
}

void mg_placement_free(mg_placement *p) {
    mg_host_list_free(&p->list);
    mg_free(p->places);
    *p = (mg_placement){0};
}
