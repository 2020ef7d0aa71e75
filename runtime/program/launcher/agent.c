/* Ranks on other hosts: see agent.h.
 *
 * The orders are texts, each ended by a zero byte: the greeting, the number of texts that follow,
 * and these in the order of `write_orders`. */
#include "program/launcher/agent.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/string_buffer.h"
#include "program/program.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

enum { MOST_TEXTS = 1 << 16, LONGEST_TEXT = 1 << 22, MOST_WORDS = 32, PATH = 4096 };

/* The beginning of the line in which an agent tells where the ranks meet. */
static const char HUB[] = "\x02mgpulua hub ";
static const char GREETING[] = "mgpulua " MG_MAIN_VERSION " agent";

/* ---- the launcher's side ---- */

/* Variables that hosts have in common, as those of a launcher; not those of a host or of a login.
 */
static bool travels(const char *variable) {
    static const char *const begins[] = {"MGPU_", "MGPULUA_", "LUA_", "OMP_", "UCX_", "NCCL_"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

static void add_text(mg_string_buffer *t, const char *text) {
    mg_string_buffer_add(t, "%s%c", text, 0);
}

static void add_number(mg_string_buffer *t, int number) {
    mg_string_buffer_add(t, "%d%c", number, 0);
}

static void write_orders(const mg_agent_orders *o, const char *folder, mg_string_buffer *t) {
    int arguments = 0, variables = 0;
    while (o->ranks.argv[arguments]) arguments++;
    for (char **v = environ; *v; v++) variables += travels(*v);
    add_text(t, GREETING);
    add_number(t, 9 + arguments + variables);
    add_text(t, folder);
    add_text(t, o->hub);
    add_text(t, o->token);
    add_number(t, o->size);
    add_number(t, (int)o->ranks.output);
    add_number(t, o->ranks.first);
    add_number(t, o->ranks.n);
    add_number(t, variables);
    add_number(t, arguments);
    for (char **v = environ; *v; v++)
        if (travels(*v)) add_text(t, *v);
    for (int i = 0; i < arguments; i++) add_text(t, o->ranks.argv[i]);
}

/* Inside an allocation of SLURM, srun reaches its hosts without keys. */
static const char *remote_command(void) {
    const char *given = getenv("MGPU_SSH");
    if (given && *given) return given;
    return getenv("SLURM_JOB_ID") ? "srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --nodelist"
                                  : "ssh -o BatchMode=yes -o ConnectTimeout=20";
}

/* The path of this program, as a word of a shell's command line. */
static bool own_path(char quoted[PATH]) {
    char path[PATH];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || n >= (ssize_t)sizeof path - 1) return false;
    path[n] = 0;
    bool plain = true;
    for (const char *p = path; *p; p++)
        plain &= isalnum((unsigned char)*p) || strchr("/._-+,:@%", *p) != NULL;
    return !strchr(path, '\'') && snprintf(quoted, PATH, plain ? "%s" : "'%s'", path) < PATH;
}

/* Splits the command at spaces, in place. */
static int split(char *command, char **words, int most) {
    int n = 0;
    char *rest = NULL;
    for (char *w = strtok_r(command, " ", &rest); w && n < most; w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    return n;
}

/* A failure shows in the exit status of the command. */
static void send_all(int to, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t sent = send(to, text, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return;
        text += sent, n -= (size_t)sent;
    }
}

mg_status mg_agent_start(mg_crew *crew, const mg_agent_orders *orders) {
    mg_member *m = &crew->members[crew->n];
    char command[PATH], program[PATH], folder[PATH], *words[MOST_WORDS + 4] = {NULL};
    snprintf(command, sizeof command, "%s", remote_command());
    if (!own_path(program) || !getcwd(folder, sizeof folder))
        return mg_fail(MG_IO, "--np: the path of mgpulua or of this folder is unknown or too long");
    int n = split(command, words, MOST_WORDS);
    if (n == 0) return mg_fail(MG_USAGE, "MGPU_SSH names no command");
    words[n++] = (char *)(size_t)m->host;
    words[n++] = program;
    words[n++] = (char *)(size_t) "--agent";
    mg_string_buffer text = {0};
    write_orders(orders, folder, &text);
    MG_TRY(mg_string_buffer_status(&text));
    const mg_status status = mg_crew_start(crew, &(mg_start){.argv = words});
    if (status == MG_OK) send_all(m->orders, text.s, text.n);
    mg_free(text.s);
    return status;
}

void mg_agent_hub(mg_crew *crew, char hub[MG_HUB_TEXT]) {
    mg_lines *lines = &crew->members[crew->n - 1].out;
    hub[0] = 0;
    lines->wanted = HUB, lines->found = hub, lines->found_room = MG_HUB_TEXT;
    while (!hub[0] && !crew->stopped)
        if (!mg_crew_turn(crew)) break;
    lines->wanted = NULL;
}

/* ---- the agent's side ---- */

typedef struct received { /* the texts, n of them */
    char **text;
    int n, next;
} received;

static void free_received(received *r) {
    for (int i = 0; i < r->n; i++) mg_free(r->text[i]);
    mg_free(r->text);
}

/* Reads byte by byte: what follows the orders is for the crew. NULL: the input ended. */
static char *read_text(void) {
    char *text = NULL, byte;
    int n = 0, room = 0;
    while (n < LONGEST_TEXT && read(STDIN_FILENO, &byte, 1) == 1) {
        if (mg_reserve((void **)&text, n, &room, 1) != MG_OK) break;
        text[n++] = byte;
        if (byte == 0) return text;
    }
    mg_free(text);
    mg_fail(MG_IO, "the launcher's orders ended early");
    return NULL;
}

static mg_status receive(received *r) {
    char *greeting = read_text(), *count = greeting ? read_text() : NULL;
    mg_status status = count ? MG_OK : MG_IO;
    if (count && strcmp(greeting, GREETING) != 0)
        status = mg_fail(MG_USAGE,
                         "this is \"%s\", but the launcher is \"%s\": install the same "
                         "version on all hosts",
                         GREETING, greeting);
    const int n = status == MG_OK ? atoi(count) : 0;
    mg_free(greeting);
    mg_free(count);
    MG_TRY(status);
    if (n < 9 || n > MOST_TEXTS) return mg_fail(MG_USAGE, "the launcher's orders are damaged");
    r->text = mg_alloc_zero((size_t)n * sizeof *r->text);
    if (!r->text) return MG_OOM;
    for (; r->n < n; r->n++)
        if (!(r->text[r->n] = read_text())) return MG_IO;
    return MG_OK;
}

static const char *next(received *r) {
    return r->text[r->next++];
}

/* Finds a place to meet, and tells the launcher. */
static mg_status meet(mg_meeting *meeting, bool others, const char **hub) {
    MG_TRY(mg_meeting_open(meeting, others));
    printf("%s%s\n", HUB, meeting->hub);
    fflush(stdout);
    *hub = meeting->hub;
    return MG_OK;
}

static mg_status run(received *r, mg_crew *crew, mg_meeting *meeting, int *status) {
    MG_TRY(receive(r));
    const char *folder = next(r), *hub = next(r), *token = next(r);
    const int size = atoi(next(r)), output = atoi(next(r)), first = atoi(next(r)),
              n = atoi(next(r)), variables = atoi(next(r)), arguments = atoi(next(r));
    if (n < 1 || size < first + n || variables < 0 || arguments < 1 ||
        r->n - r->next != variables + arguments)
        return mg_fail(MG_USAGE, "the launcher's orders are damaged");
    for (int i = 0; i < variables; i++) {
        char *variable = r->text[r->next++], *sign = strchr(variable, '=');
        if (!sign) continue;
        *sign = 0;
        setenv(variable, sign + 1, 1);
    }
    if (chdir(folder) != 0)
        return mg_fail(MG_IO, "cannot enter the folder %s: %s", folder, mg_reason(errno));
    char **argv = mg_alloc_zero(((size_t)arguments + 1) * sizeof *argv);
    if (!argv) return MG_OOM;
    memcpy(argv, r->text + r->next, (size_t)arguments * sizeof *argv);
    mg_status started = *hub ? MG_OK : meet(meeting, size > n, &hub);
    mg_ranks_prepare(size, hub, token);
    if (started == MG_OK) started = mg_crew_open(crew, n, size, STDIN_FILENO);
    if (started == MG_OK)
        started = mg_ranks_start(crew, &(mg_ranks){.argv = argv,
                                                   .output = (mg_output)output,
                                                   .first = first,
                                                   .n = n,
                                                   .local_size = n});
    if (started == MG_OK) *status = mg_crew_wait(crew);
    mg_free(argv);
    return started;
}

int mg_agent_main(void) {
    char host[256] = "";
    received r = {0};
    mg_crew crew = {.signals = -1};
    mg_meeting meeting = {.reserved = -1};
    int status = EXIT_FAILURE;
    if (run(&r, &crew, &meeting, &status) != MG_OK) {
        gethostname(host, sizeof host - 1);
        fprintf(stderr, "mgpulua: host %s: %s\n", host, mg_error_message());
        status = mg_error_code() == MG_IO ? MG_EXIT_FILE : EXIT_FAILURE;
    }
    mg_crew_close(&crew);
    mg_meeting_close(&meeting);
    free_received(&r);
    return status;
}
