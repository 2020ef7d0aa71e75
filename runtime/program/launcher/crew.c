/* Starting and awaiting the processes of a crew: see crew.h.
 *
 * Ranks stay in the launcher's process group, so that Ctrl-C and Ctrl-Z at the terminal reach them
 * and rank 0 may read from it. Agents get a group of their own: a Ctrl-C that ended ssh would leave
 * their ranks alone. All waiting is in one poll: for signals, output and orders. */
#define _GNU_SOURCE
#include "program/launcher/crew.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The status of a process whose peers failed: it explains nothing, so another one is preferred. */
enum { EXIT_PEER = 76 };
/* The status of ssh if it cannot reach the host. */
enum { NOT_REACHED = 255 };
/* Seconds: from the first failure to SIGTERM for the others, which learn of it at once and end by
 * themselves after their step; and from there to SIGKILL. */
static const double GRACE = 10, LAST_GRACE = 5;

/* The first three are those that ranks handle even if the launcher was started with the signal
 * ignored, as shells do with SIGINT in the background. */
static const int PASSED_ON[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT, SIGUSR2, SIGCONT};
enum { N_PASSED_ON = sizeof PASSED_ON / sizeof *PASSED_ON };

static void signal_set(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int i = 0; i < N_PASSED_ON; i++) sigaddset(set, PASSED_ON[i]);
}

/* MGPU_LAUNCH_GRACE replaces GRACE. */
static double grace(void) {
    const char *text = getenv("MGPU_LAUNCH_GRACE");
    char *end;
    const double seconds = text && *text ? strtod(text, &end) : -1;
    return seconds >= 0 && !*end ? seconds : GRACE;
}

mg_status mg_crew_open(mg_crew *crew, int n, int size, int orders) {
    sigset_t set;
    signal_set(&set);
    *crew = (mg_crew){.size = size, .orders = orders, .signals = -1};
    crew->members = mg_alloc_zero((size_t)n * sizeof *crew->members);
    crew->polled = mg_alloc((2 + 2 * (size_t)n) * sizeof *crew->polled);
    if (!crew->members || !crew->polled) return MG_OOM;
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 3; i++) signal(PASSED_ON[i], SIG_DFL);
    crew->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (crew->signals < 0) return mg_fail(MG_IO, "--np: signalfd: %s", mg_reason(errno));
    return MG_OK;
}

/* ---- starting ---- */

typedef struct channels { /* descriptors of the new process; -1: it keeps the launcher's */
    int in, out, err;
    int problem; /* a pipe for the errno of a failed exec */
} channels;

static void close_channels(channels *c) {
    const int all[] = {c->in, c->out, c->err, c->problem};
    for (int i = 0; i < 4; i++)
        if (all[i] >= 0) close(all[i]);
    *c = (channels){-1, -1, -1, -1};
}

/* A pipe whose output goes to `to` with this prefix. */
static bool open_lines(mg_lines *lines, int to, const char *prefix, int *end) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) return false;
    *end = pipe_ends[1];
    *lines = (mg_lines){.from = pipe_ends[0], .to = to};
    snprintf(lines->prefix, sizeof lines->prefix, "%s", prefix);
    return true;
}

static bool open_channels(const mg_crew *crew, mg_member *m, mg_output output, channels *c) {
    char prefix[24] = "";
    *c = (channels){-1, -1, -1, -1};
    if (m->host) { /* an agent */
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
        m->orders = ends[0], c->in = ends[1];
        return open_lines(&m->out, STDOUT_FILENO, prefix, &c->out) &&
               open_lines(&m->err, STDERR_FILENO, prefix, &c->err);
    }
    const bool reads = m->rank == 0 && crew->orders < 0; /* the launcher's standard input */
    if (!reads && (c->in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) return false;
    if (output == MG_OUTPUT_PREFIX) {
        snprintf(prefix, sizeof prefix, "[%d] ", m->rank);
        return open_lines(&m->out, STDOUT_FILENO, prefix, &c->out) &&
               open_lines(&m->err, STDERR_FILENO, prefix, &c->err);
    }
    if (output == MG_OUTPUT_RANK0 && m->rank > 0) c->out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return output != MG_OUTPUT_RANK0 || m->rank == 0 || c->out >= 0;
}

/* In the new process. A rank ends when its launcher is killed: the kernel sends it SIGTERM. */
static void execute(const mg_start *s, bool is_rank, const channels *c, pid_t launcher) {
    sigset_t none;
    sigemptyset(&none);
    const int from[] = {c->in, c->out, c->err};
    for (int i = 0; i < 3; i++)
        if (from[i] >= 0) dup2(from[i], i);
    if (is_rank) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != launcher) _exit(EXIT_FAILURE);
    } else {
        setpgid(0, 0);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(s->program ? s->program : s->argv[0], s->argv);
    const int problem = errno;
    const ssize_t told = write(c->problem, &problem, sizeof problem);
    _exit(told == sizeof problem ? 127 : 126);
}

mg_status mg_crew_start(mg_crew *crew, const mg_start *s) {
    mg_member *m = &crew->members[crew->n];
    channels c;
    int ends[2], problem = 0;
    m->orders = m->out.from = m->err.from = -1;
    crew->n++;
    fflush(NULL);
    if (!open_channels(crew, m, s->output, &c) || pipe2(ends, O_CLOEXEC) != 0) {
        const int error = errno;
        close_channels(&c);
        return mg_fail(MG_IO, "--np: cannot make pipes for rank %d of %d: %s", m->rank, crew->size,
                       mg_reason(error));
    }
    c.problem = ends[1];
    const pid_t launcher = getpid(), pid = fork();
    const int error = errno;
    if (pid == 0) execute(s, !m->host, &c, launcher);
    close_channels(&c);
    if (pid < 0) {
        close(ends[0]);
        return mg_fail(MG_IO, "--np: cannot start rank %d of %d: %s", m->rank, crew->size,
                       mg_reason(error));
    }
    m->pid = pid;
    const bool failed = read(ends[0], &problem, sizeof problem) == sizeof problem;
    close(ends[0]);
    if (failed)
        return mg_fail(MG_IO, "--np: cannot run %s: %s", s->program ? s->program : s->argv[0],
                       mg_reason(problem));
    return MG_OK;
}

/* ---- signals and ends ---- */

/* Sends a signal to all members. `from_terminal`: it went to this process group, so ranks have it.
 */
static void pass_on(mg_crew *crew, int number, bool from_terminal) {
    const char order = (char)number;
    for (int i = 0; i < crew->n; i++) {
        const mg_member *m = &crew->members[i];
        if (m->pid == 0) continue;
        if (!m->host && !from_terminal) kill(m->pid, number);
        if (m->host && m->orders >= 0) send(m->orders, &order, 1, MSG_NOSIGNAL);
    }
}

/* Ends what is left: SIGTERM at first, with SIGCONT for processes that are stopped, then SIGKILL.
 * An agent that lost its orders does the same. */
static void end_all(mg_crew *crew) {
    if (crew->asked++ == 0) {
        pass_on(crew, SIGTERM, false);
        pass_on(crew, SIGCONT, false);
        crew->end = mg_seconds() + LAST_GRACE;
        return;
    }
    for (int i = 0; i < crew->n; i++)
        if (crew->members[i].pid) kill(crew->members[i].pid, SIGKILL);
    crew->end = mg_seconds() + LAST_GRACE;
}

/* What a failed member needs to have said for it: a rank that ends by itself explains itself. */
static void tell(const mg_crew *crew, const mg_member *m, int how, int status) {
    if (crew->stopped || crew->asked) return;
    if (m->host && WIFEXITED(how) && (status == NOT_REACHED || status == 127))
        fprintf(stderr,
                "mgpulua: host %s: %s: try the command of MGPU_SSH (or ssh) by hand, and install "
                "mgpulua at the same path on all hosts\n",
                m->host,
                status == NOT_REACHED
                    ? "it could not be reached, or a rank there ended with status 255"
                    : "mgpulua was not found there");
    else if (WIFSIGNALED(how))
        fprintf(stderr, "mgpulua: %s %d of %d (pid %d) was killed by signal %d (%s)\n",
                m->host ? "the agent of rank" : "rank", m->rank, crew->size, (int)m->pid,
                WTERMSIG(how), strsignal(WTERMSIG(how)));
}

static void note_end(mg_crew *crew, mg_member *m, int how) {
    const int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    mg_lines_drain(&m->out);
    mg_lines_drain(&m->err);
    if (status != EXIT_SUCCESS) {
        tell(crew, m, how, status);
        m->lost = m->host && !crew->asked && !crew->stopped &&
                  (WIFSIGNALED(how) || status == NOT_REACHED);
        if (!crew->asked && (crew->status == EXIT_SUCCESS || crew->status == EXIT_PEER))
            crew->status = status;
        if (crew->end <= 0) crew->end = mg_seconds() + grace();
    }
    m->pid = 0;
    if (m->orders >= 0) close(m->orders);
    m->orders = -1;
}

static void reap(mg_crew *crew) {
    int how;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
        for (int i = 0; i < crew->n; i++)
            if (crew->members[i].pid == pid) note_end(crew, &crew->members[i], how);
}

static void read_signals(mg_crew *crew) {
    struct signalfd_siginfo got;
    while (read(crew->signals, &got, sizeof got) == sizeof got) {
        const int number = (int)got.ssi_signo;
        if (number == SIGCHLD) continue;
        crew->stopped |= number != SIGCONT && number != SIGUSR1 && number != SIGUSR2;
        pass_on(crew, number, got.ssi_code == SI_KERNEL);
    }
    reap(crew);
}

/* An agent's orders: each byte is a signal. If they end, the launcher has gone. */
static void read_orders(mg_crew *crew) {
    char order;
    const ssize_t got = read(crew->orders, &order, 1);
    if (got < 0 && errno == EINTR) return;
    if (got == 1) {
        crew->stopped = true;
        pass_on(crew, order, false);
        return;
    }
    crew->orders = -1;
    if (crew->asked == 0) end_all(crew);
}

/* ---- waiting ---- */

static bool has_running(const mg_crew *crew) {
    for (int i = 0; i < crew->n; i++)
        if (crew->members[i].pid) return true;
    return false;
}

/* Members whose processes have ended may have started others that still write; they get LAST_GRACE
 * seconds. */
static bool is_over(mg_crew *crew) {
    if (has_running(crew)) return false;
    if (!crew->drains) crew->end = mg_seconds() + LAST_GRACE;
    crew->drains = true;
    bool open = false;
    for (int i = 0; i < crew->n; i++)
        open |= crew->members[i].out.from >= 0 || crew->members[i].err.from >= 0;
    return !open || mg_seconds() > crew->end;
}

/* Fills in what to wait for; the order is that of `handle`. */
static nfds_t list(const mg_crew *crew, struct pollfd *polled) {
    nfds_t n = 0;
    polled[n++] = (struct pollfd){.fd = crew->signals, .events = POLLIN};
    polled[n++] = (struct pollfd){.fd = crew->orders, .events = POLLIN};
    for (int i = 0; i < crew->n; i++) {
        polled[n++] = (struct pollfd){.fd = crew->members[i].out.from, .events = POLLIN};
        polled[n++] = (struct pollfd){.fd = crew->members[i].err.from, .events = POLLIN};
    }
    return n;
}

static void handle(mg_crew *crew, const struct pollfd *polled) {
    for (int i = 0; i < crew->n; i++) {
        if (polled[2 + 2 * i].revents) mg_lines_pass(&crew->members[i].out);
        if (polled[3 + 2 * i].revents) mg_lines_pass(&crew->members[i].err);
    }
    if (polled[1].revents) read_orders(crew);
    if (polled[0].revents) read_signals(crew);
}

bool mg_crew_turn(mg_crew *crew) {
    if (is_over(crew)) return false;
    const double left = crew->end - mg_seconds();
    if (crew->end > 0 && left <= 0 && !crew->drains) {
        end_all(crew);
        return true;
    }
    const nfds_t n = list(crew, crew->polled);
    if (poll(crew->polled, n, crew->end > 0 ? 1 + (int)(1000 * left) : -1) > 0)
        handle(crew, crew->polled);
    reap(crew);
    return true;
}

int mg_crew_wait(mg_crew *crew) {
    while (mg_crew_turn(crew)) {
    }
    return crew->status;
}

void mg_crew_close(mg_crew *crew) {
    for (int i = 0; i < crew->n; i++) {
        mg_member *m = &crew->members[i];
        if (m->pid) kill(m->pid, SIGKILL), waitpid(m->pid, NULL, 0);
        if (m->orders >= 0) close(m->orders);
        if (m->out.from >= 0) close(m->out.from);
        if (m->err.from >= 0) close(m->err.from);
        mg_free(m->out.text);
        mg_free(m->err.text);
    }
    if (crew->signals >= 0) close(crew->signals);
    mg_free(crew->members);
    mg_free(crew->polled);
    *crew = (mg_crew){0};
}
