/* mgpulua --np N script: starts the script N times, as the ranks of one world.
 *
 * Ranks are told their places in the variables that world/launch.h describes, and meet at a port of
 * rank 0 with a random token. The token travels in the environment, since other users can read
 * command lines. */
#define _GNU_SOURCE /* CPU_COUNT */
#include "core/alloc.h"
#include "core/limits.h"
#include "program/launcher/agent.h"
#include "program/launcher/meeting.h"
#include "program/launcher/options.h"
#include "program/launcher/placement.h"
#include "program/launcher/ranks.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PER_CPU = 16, LEAST_LIMIT = 64 }; /* processes on this host that are no mistake */

typedef struct job {
    const mg_command_line *line;
    mg_output output;
    mg_placement placement;
    int restarts; /* that are left */
    char token[MG_TOKEN];
    mg_meeting meeting;
    char **argv; /* of a rank; owned */
} job;

/* The status of ranks that a signal has ended after they have saved their training. */
enum { EXIT_SAVED = 75 };

bool mg_launcher_wanted(const mg_command_line *m) {
    const mg_launch_options *o = &m->launch;
    return o->np || o->hosts || o->host_file || o->restart || o->elastic;
}

/* ---- checks before anything is started ---- */

/* A mistake in the script's name is told once, not by every rank. */
static mg_status check_script(const mg_command_line *m) {
    const char *name = m->script < m->argc ? m->argv[m->script] : NULL;
    if (m->interactive || (!name && !m->executed))
        return mg_fail(MG_USAGE, "--np needs a script: the prompt runs in one process only");
    if (name && strcmp(name, "-") == 0 && strcmp(m->argv[m->script - 1], "--") != 0)
        return mg_fail(MG_USAGE, "--np needs a script in a file: only one process could read it "
                                 "from standard input");
    if (name && access(name, R_OK) != 0)
        return mg_fail(MG_IO, "cannot open %s: %s", name, mg_reason(errno));
    return MG_OK;
}

static mg_status check_count(int np) {
    cpu_set_t set;
    const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const int most = cpus * PER_CPU > LEAST_LIMIT ? cpus * PER_CPU : LEAST_LIMIT;
    if (np <= most) return MG_OK;
    return mg_fail(MG_USAGE,
                   "--np %d: this host has %d CPUs, so more than %d processes look like a mistake: "
                   "give -H localhost:%d if they are wanted",
                   np, cpus, most, np);
}

/* ---- the run ---- */

static mg_status prepare(job *j) {
    const mg_command_line *m = j->line;
    MG_TRY(mg_placement_find(&m->launch, &j->placement));
    MG_TRY(mg_launcher_output(m->launch.output, &j->output));
    MG_TRY(mg_launcher_ranks_per_gpu(m->launch.ranks_per_gpu));
    MG_TRY(mg_launcher_restarts(m->launch.restart, &j->restarts));
    if (j->placement.any_host) MG_TRY(check_count(j->placement.np));
    MG_TRY(check_script(m));
    j->argv = mg_alloc(((size_t)m->argc + 1) * sizeof *j->argv);
    if (!j->argv) return MG_OOM;
    mg_command_line_of_rank(m, j->argv);
    return MG_OK;
}

/* Other hosts than this one take part. */
static bool has_others(const job *j) {
    for (int i = 0; i < j->placement.n; i++)
        if (j->placement.places[i].host) return true;
    return false;
}

static mg_status start(job *j, mg_crew *crew, const mg_place *place) {
    const mg_ranks ranks = {.argv = j->argv,
                            .output = j->output,
                            .first = place->first,
                            .n = place->n,
                            .local_first = place->local_first,
                            .local_size = place->local_size};
    if (!place->host) return mg_ranks_start(crew, &ranks);
    crew->members[crew->n] = (mg_member){.rank = place->first, .host = place->host};
    return mg_agent_start(crew, &(mg_agent_orders){.ranks = ranks,
                                                   .size = j->placement.np,
                                                   .hub = j->meeting.hub,
                                                   .token = j->token});
}

/* Rank 0's host comes first: if it is another one, its agent tells where the ranks meet. */
static mg_status start_all(job *j, mg_crew *crew) {
    const mg_place *places = j->placement.places;
    if (!places[0].host) MG_TRY(mg_meeting_open(&j->meeting, has_others(j)));
    mg_ranks_prepare(j->placement.np, j->meeting.hub, j->token);
    MG_TRY(start(j, crew, &places[0]));
    if (places[0].host) {
        mg_agent_hub(crew, j->meeting.hub);
        if (!j->meeting.hub[0]) return MG_OK; /* it has failed, which mg_crew_wait tells */
        mg_ranks_prepare(j->placement.np, j->meeting.hub, j->token);
    }
    for (int i = 1; i < j->placement.n; i++) MG_TRY(start(j, crew, &places[i]));
    return MG_OK;
}

/* With a token of its own, so that nobody who is left over from the last start is let in. */
static mg_status run_once(job *j, mg_crew *crew, int *status) {
    MG_TRY(mg_launch_make_token(j->token));
    mg_meeting_close(&j->meeting); /* of the last start */
    j->meeting = (mg_meeting){.reserved = -1};
    MG_TRY(mg_crew_open(crew, j->placement.np, j->placement.np, -1));
    MG_TRY(start_all(j, crew));
    *status = mg_crew_wait(crew);
    return MG_OK;
}

/* Whether the ranks are to be started again after this end. */
static bool goes_on(job *j, const mg_crew *crew, int status) {
    const int np = j->placement.np;
    if (status == EXIT_SUCCESS || status == EXIT_SAVED || crew->stopped || !j->restarts)
        return false;
    for (int i = 0; i < crew->n; i++) {
        const char *host = crew->members[i].lost ? crew->members[i].host : NULL;
        if (host && j->placement.least && !mg_placement_lose(&j->placement, host)) {
            fprintf(stderr, "mgpulua: without host %s there is no place for %d processes\n", host,
                    j->placement.least);
            return false;
        }
    }
    j->restarts--;
    fprintf(stderr, "mgpulua: all processes start again, %d in the place of %d (%d %s left)\n",
            j->placement.np, np, j->restarts, j->restarts == 1 ? "restart is" : "restarts are");
    return true;
}

static mg_status run(job *j, mg_crew *crew, int *status) {
    MG_TRY(prepare(j));
    MG_TRY(run_once(j, crew, status));
    while (goes_on(j, crew, *status)) {
        mg_crew_close(crew);
        *crew = (mg_crew){.signals = -1};
        MG_TRY(run_once(j, crew, status));
    }
    return MG_OK;
}

int mg_launcher_run(const mg_command_line *m) {
    job j = {.line = m, .meeting.reserved = -1};
    mg_crew crew = {.signals = -1};
    int status = EXIT_FAILURE;
    if (run(&j, &crew, &status) != MG_OK) {
        fprintf(stderr, "mgpulua: %s\n", mg_error_message());
        status = mg_error_code() == MG_IO ? MG_EXIT_FILE : EXIT_FAILURE;
    }
    mg_crew_close(&crew);
    mg_meeting_close(&j.meeting);
    mg_placement_free(&j.placement);
    mg_free(j.argv);
    return status;
}
