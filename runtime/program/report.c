/* SIGQUIT (Ctrl-\, kill -QUIT): says on stderr what each thread is in, and goes on.
 *
 * The handler may only note the request, so a thread prints. It is made before the first step: not
 * at the signal, because the cpu device blocks signals while it computes in the script's thread,
 * and not at the start of the program, which would take 2 % longer. The system gives the signal to
 * the script's thread if that does not block signals, else to the printing one. The same thread
 * serves attached prompts (attach/), which ask for reports, too.
 *
 * If the script's thread gets it, a hook adds where the Lua code is, unless it waits in C. Before
 * the first step, the hook makes the printing thread. */
#define _GNU_SOURCE /* sem_clockwait */
#include "core/activity.h"
#include "core/printable.h"
#include "core/threads.h"
#include "program/attach/attach.h"
#include "program/program.h"
#include "world/world.h"

#include <errno.h>
#include <lauxlib.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How long a report waits for the hook that tells where the Lua code is, seconds. */
static const double LUA_WITHIN = 0.2;
/* Signals within this time count as one: a terminal and a launcher both send it to a rank. */
static const double SAME_SIGNAL = 0.1;
/* How long the end of the program waits for a report. */
static const double AT_END = 1;

static atomic_int n_asked;                         /* signals that are not answered yet */
static int wake = -1;                              /* an eventfd: there is something to do */
static sem_t told;                                 /* lua_text is complete */
static atomic_bool closing, lua_asked, lua_wanted; /* asked: the script's thread has a hook */
static char lua_text[4000];
static pthread_t script;
static bool printing;

/* ---- the report ---- */

typedef struct report {
    const char *indent; /* before each line */
    char *text;
    size_t n, room;
} report;

static void add_line(const char *line, void *context) {
    report *r = context;
    char shown[1200]; /* names may have anything in them */
    mg_printable(line, strlen(line), true, shown, sizeof shown);
    const int n = snprintf(r->text + r->n, r->room - r->n, "%s%s\n", r->indent, shown);
    if (n > 0 && r->n + (size_t)n < r->room) r->n += (size_t)n;
}

static void add_lua(report *r) {
    char *rest = NULL;
    for (char *line = strtok_r(lua_text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strcmp(line, "stack traceback:") == 0) continue;
        char shown[600];
        snprintf(shown, sizeof shown, "main, in Lua: %s", line + (*line == '\t'));
        add_line(shown, r);
    }
}

/* The lines of the report: threads, and the Lua code, if the script's thread can be asked. */
static void add_threads(report *r) {
    const struct timespec until = mg_time_after(LUA_WITHIN);
    mg_activity_report(add_line, r);
    if (atomic_exchange(&lua_asked, false) && sem_clockwait(&told, CLOCK_MONOTONIC, &until) == 0)
        add_lua(r);
    atomic_store(&lua_wanted, false);
    while (sem_trywait(&told) == 0) continue; /* the hook was late */
}

size_t mg_main_where(char *text, size_t room) {
    report r = {.indent = "", .text = text, .room = room};
    atomic_store(&lua_wanted, true);
    atomic_store(&lua_asked, true);
    mg_attach_call_hook();
    add_threads(&r);
    return r.n;
}

static void print_report(void) {
    static char text[1 << 16];
    report r = {.indent = "mgpulua:   ", .text = text, .room = sizeof text};
    char header[200];
    const int size = mg_world_size();
    snprintf(header, sizeof header, "mgpulua: process %d", (int)getpid());
    if (size > 1)
        snprintf(header + strlen(header), sizeof header - strlen(header), ", rank %d of %d",
                 mg_world_rank(), size);
    r.n = (size_t)snprintf(text, sizeof text, "%s, at SIGQUIT:\n", header);
    add_threads(&r);
    for (size_t at = 0; at < r.n;) { /* one call, so that reports of ranks do not mix */
        const ssize_t n = write(STDERR_FILENO, r.text + at, r.n - at);
        if (n < 0 && errno != EINTR) return;
        at += n > 0 ? (size_t)n : 0;
    }
}

static void *printer_main(void *unused) {
    uint64_t rung;
    sigset_t quit;
    double last = -1;
    sigemptyset(&quit);
    sigaddset(&quit, SIGQUIT);
    pthread_sigmask(SIG_UNBLOCK, &quit, NULL);
    for (;;) {
        mg_attach_serve(wake);
        if (read(wake, &rung, sizeof rung) < 0) continue;
        if (atomic_load(&closing)) return mg_attach_close(), unused;
        const int n = atomic_load(&n_asked);
        if (n && mg_seconds() - last > SAME_SIGNAL) {
            print_report();
            last = mg_seconds();
        }
        atomic_fetch_sub(&n_asked, n);
    }
}

void mg_main_report_open(void) {
    if (wake < 0) wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void start_printer(void) {
    pthread_t printer;
    mg_activity_name("main");
    mg_main_report_open();
    if (wake < 0) return;
    printing = mg_thread_start(&printer, printer_main, NULL);
    if (printing) pthread_detach(printer);
}

/* ---- the signal ---- */

static void ring(void) {
    const uint64_t one = 1;
    if (write(wake, &one, sizeof one) < 0) return; /* it is ringing already */
}

static void on_quit(int number) {
    const int before = errno;
    (void)number;
    if (pthread_equal(pthread_self(), script)) {
        atomic_store(&lua_wanted, true);
        atomic_store(&lua_asked, true);
        mg_main_hook_soon();
    }
    atomic_fetch_add(&n_asked, 1);
    ring();
    errno = before;
}

bool mg_main_report_wanted(void) {
    return atomic_load_explicit(&lua_wanted, memory_order_relaxed);
}

void mg_main_report_lua(lua_State *L) {
    if (!printing && (mg_main_report_wanted() || mg_attach_knocked())) start_printer();
    if (!mg_main_report_wanted() || !lua_checkstack(L, 8)) return;
    mg_main_push_traceback(L, 0);
    snprintf(lua_text, sizeof lua_text, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    if (atomic_exchange(&lua_wanted, false)) sem_post(&told);
}

void mg_main_report_start(void) {
    script = pthread_self();
    mg_main_report_open();
    sem_init(&told, 0, 0);
    mg_activity_at_first(start_printer);
    const struct sigaction action = {.sa_handler = on_quit, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGQUIT, &action, NULL);
}

void mg_main_report_stop(void) {
    const double until = mg_seconds() + AT_END;
    atomic_store(&lua_asked, false); /* no Lua code will run any more */
    while (printing && atomic_load(&n_asked) && mg_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&closing, true);
    if (printing) ring();
}
