/* Starting, signalling and awaiting processes: see process.h.
 *
 * Everything that needs memory is prepared before fork: in the copy of a process with threads only
 * system calls are safe. A pipe that closes at exec tells the errno of an exec that failed. */
#define _GNU_SOURCE
#include "core/process.h"
#include "core/alloc.h"
#include "core/io_file.h"
#include "core/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the environment ---- */

/* Whether one of the variables has the name of this entry, "NAME=value". */
static bool is_replaced(const char *entry, const char *const *variables) {
    const size_t n = strcspn(entry, "=");
    for (; *variables; variables++)
        if (strcspn(*variables, "=") == n && strncmp(*variables, entry, n) == 0) return true;
    return false;
}

/* This process's environment, changed by the variables. The array is owned (mg_free), its texts are
 * borrowed. NULL: MG_OOM. */
static char **make_environment(const char *const *variables) {
    size_t n = 0, more = 0, k = 0;
    while (environ[n]) n++;
    while (variables[more]) more++;
    char **list = mg_alloc((n + more + 1) * sizeof *list);
    if (!list) return NULL;
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i], variables)) list[k++] = environ[i];
    for (size_t i = 0; i < more; i++)
        if (strchr(variables[i], '=')) list[k++] = (char *)(uintptr_t)variables[i];
    list[k] = NULL;
    return list;
}

/* ---- starting ---- */

typedef struct channels {
    int in, out;
    int problem[2]; /* a pipe for the errno of a failed exec */
} channels;

static void close_all(const channels *c) {
    const int all[] = {c->in, c->out, c->problem[0], c->problem[1]};
    for (int i = 0; i < 4; i++)
        if (all[i] >= 0) close(all[i]);
}

static mg_status open_channels(const char *output, channels *c) {
    *c = (channels){-1, -1, {-1, -1}};
    MG_IO_RETRY(c->out, open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (c->out < 0) return mg_io_fail_call("write", output);
    c->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (c->in >= 0 && pipe2(c->problem, O_CLOEXEC) == 0) return MG_OK;
    return mg_fail(MG_IO, "cannot make a pipe: %s", mg_reason(errno));
}

/* In the new process. */
static void execute(const mg_process_plan *plan, char **environment, const channels *c,
                    pid_t parent) {
    static const int reset[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1};
    sigset_t none;
    sigemptyset(&none);
    dup2(c->in, STDIN_FILENO);
    dup2(c->out, STDOUT_FILENO);
    dup2(c->out, STDERR_FILENO);
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++) signal(reset[i], SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(plan->program, plan->arguments, environment);
    const int problem = errno;
    const ssize_t told = write(c->problem[1], &problem, sizeof problem);
    _exit(told == sizeof problem ? 127 : 126);
}

/* Waits until the new process executes the program, or could not. */
static mg_status await_exec(const mg_process_plan *plan, mg_process *p, const channels *c) {
    int problem = 0;
    ssize_t got;
    do got = read(c->problem[0], &problem, sizeof problem);
    while (got < 0 && errno == EINTR);
    if (got != sizeof problem) return MG_OK;
    mg_process_kill(p);
    return mg_fail(MG_IO, "cannot run %s: %s", plan->program, mg_reason(problem));
}

mg_status mg_process_start(const mg_process_plan *plan, mg_process *p) {
    channels c;
    *p = (mg_process){0};
    char **environment = make_environment(plan->variables);
    if (!environment) return MG_OOM;
    mg_status status = open_channels(plan->output, &c);
    if (status == MG_OK) {
        const pid_t parent = getpid(), pid = fork();
        if (pid == 0) execute(plan, environment, &c, parent);
        if (pid < 0)
            status = mg_fail(MG_IO, "cannot start a process: %s", mg_reason(errno));
        else
            p->pid = pid, setpgid(pid, pid); /* both do it: a signal may come first */
    }
    if (c.problem[1] >= 0) close(c.problem[1]);
    c.problem[1] = -1;
    if (status == MG_OK) status = await_exec(plan, p, &c);
    close_all(&c);
    mg_free(environment);
    return status;
}

/* ---- afterwards ---- */

static bool wait_for(mg_process *p, int flags) {
    pid_t got = 0;
    if (p->pid == 0) return true;
    do got = waitpid(p->pid, &p->status, flags);
    while (got < 0 && errno == EINTR);
    if (got == 0) return false;
    if (got < 0) p->status = 0; /* somebody else has waited for it */
    p->pid = 0;
    return true;
}

bool mg_process_ended(mg_process *p) {
    return wait_for(p, WNOHANG);
}

void mg_process_signal(const mg_process *p, int signal_number) {
    if (p->pid > 0 && kill(-p->pid, signal_number) != 0) kill(p->pid, signal_number);
}

void mg_process_kill(mg_process *p) {
    mg_process_signal(p, SIGKILL);
    wait_for(p, 0);
}
