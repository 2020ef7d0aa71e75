/* The flags of interrupts and stops, forks, the clock and waiting by it, and the count of physical
 * cores. */
#define _GNU_SOURCE
#include "core/fnv.h"
#include "core/threads.h"
#include "core/alloc.h"
#include "core/limits.h"
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Set by a signal handler: a lock-free atomic is all that may be touched there. */
static atomic_bool interrupted;
static atomic_int interrupted_by; /* a signal's number, or 0 */

void mg_interrupt_by(int signal_number) {
    atomic_store(&interrupted_by, signal_number);
    atomic_store(&interrupted, true);
}

void mg_interrupt(void) {
    mg_interrupt_by(0);
}

int mg_interrupt_signal(void) {
    return atomic_load(&interrupted_by);
}

/* The plain load first: it is cheap, and runs before every step. */
bool mg_interrupt_take(void) {
    return atomic_load(&interrupted) && atomic_exchange(&interrupted, false);
}

bool mg_interrupt_pending(void) {
    return atomic_load(&interrupted);
}

static atomic_bool stop_listening, stop_saved, stop_interrupts;
static atomic_int stop_reason; /* a signal's number, or 0 */

void mg_stop_listen(bool on) {
    atomic_store(&stop_listening, on);
    const int late = atomic_exchange(&stop_reason, 0);
    if (on)
        atomic_store(&stop_saved, false);
    else if (late && !atomic_load(&stop_saved))
        mg_interrupt_by(late);
}

void mg_stop_take_interrupts(bool on) {
    atomic_store(&stop_interrupts, on);
}

bool mg_stop_takes_interrupts(void) {
    return atomic_load(&stop_interrupts) && !mg_stop_requested();
}

bool mg_stop_request(int reason) {
    if (!atomic_load(&stop_listening)) return false;
    atomic_store(&stop_reason, reason);
    return true;
}

int mg_stop_requested(void) {
    return atomic_load(&stop_reason);
}

void mg_stop_set_saved(void) {
    atomic_store(&stop_saved, true);
}

bool mg_stop_saved(void) {
    return atomic_load(&stop_saved);
}

static _Thread_local bool holding;    /* between mg_signals_hold and mg_signals_release */
static _Thread_local sigset_t unheld; /* the mask before mg_signals_hold */

/* Blocks all signals but those of crashes (SIGSEGV, ...), which must still end the process with a
 * message. */
static void block_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&held, faults[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

void mg_signals_hold(void) {
    block_signals(&unheld);
    holding = true;
}

void mg_signals_release(void) {
    holding = false;
    pthread_sigmask(SIG_SETMASK, &unheld, NULL);
}

/* The handlers of waiting signals run while the mask is the old one. */
void mg_signals_admit(void) {
    sigset_t waiting;
    if (!holding || sigpending(&waiting) != 0 || sigisemptyset(&waiting)) return;
    pthread_sigmask(SIG_SETMASK, &unheld, NULL);
    block_signals(&unheld);
}

enum { NAMED_SIGNALS = sizeof((mg_signals_kept *)0)->handlers / sizeof(struct sigaction) };

void mg_signals_keep(mg_signals_kept *kept) {
    sigset_t all;
    sigfillset(&all);
    for (int s = 1; s < NAMED_SIGNALS; s++) sigaction(s, NULL, &kept->handlers[s]);
    pthread_sigmask(SIG_SETMASK, &all, &kept->mask);
}

void mg_signals_restore(const mg_signals_kept *kept) {
    for (int s = 1; s < NAMED_SIGNALS; s++) sigaction(s, &kept->handlers[s], NULL);
    pthread_sigmask(SIG_SETMASK, &kept->mask, NULL);
}

bool mg_thread_start(pthread_t *thread, void *(*thread_main)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, thread_main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return !failed;
}

/* A thread that mg_threads_available makes: it ends when the gate is opened. */
typedef struct probe {
    pthread_mutex_t *gate;
    pthread_t thread;
    pid_t id;
} probe;

static void *probe_main(void *argument) {
    probe *p = argument;
    p->id = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(p->gate);
    pthread_mutex_unlock(p->gate);
    return NULL;
}

/* A thread that was joined counts towards the limit until the kernel has forgotten its number. */
static void await_end(const probe *p) {
    enum { TRIES = 10000 };
    for (int i = 0; i < TRIES && syscall(SYS_tgkill, getpid(), p->id, 0) == 0; i++) sched_yield();
}

mg_status mg_threads_available(int n) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int made = 0, error = 0;
    probe *probes = mg_alloc_zero((size_t)n * sizeof *probes);
    if (!probes) return MG_OOM;
    pthread_mutex_lock(&gate);
    for (; made < n; made++) {
        probes[made].gate = &gate;
        if (!mg_thread_start(&probes[made].thread, probe_main, &probes[made])) break;
    }
    error = errno;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++) pthread_join(probes[i].thread, NULL);
    for (int i = 0; i < made; i++) await_end(&probes[i]);
    mg_free(probes);
    return made == n ? MG_OK : mg_fail(MG_OOM, "cannot make a thread: %s", mg_reason(error));
}

static atomic_bool forked;

static void note_fork(void) {
    atomic_store(&forked, true);
}

static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, note_fork);
}

void mg_threads_watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handler);
}

bool mg_threads_forked(void) {
    return atomic_load(&forked);
}

uint64_t mg_nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

double mg_seconds(void) {
    return 1e-9 * (double)mg_nanoseconds();
}

void mg_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

struct timespec mg_time_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

double mg_deadline(void) {
    const char *given = getenv("MGPU_DEADLINE");
    return given && atof(given) > 0 ? atof(given) : 600;
}

/* The lowest-numbered hardware thread of the core that `cpu` belongs to; `cpu` itself if the system
 * does not tell. */
static int core_of(int cpu) {
    char path[96];
    int leader = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f) return cpu;
    if (fscanf(f, "%d", &leader) != 1) leader = cpu;
    fclose(f);
    return leader;
}

static cpu_set_t kept; /* by mg_core_count_keep */
static bool is_kept;

void mg_core_count_keep(void) {
    if (!is_kept) is_kept = sched_getaffinity(0, sizeof kept, &kept) == 0;
}

/* Counts each core once, however many hardware threads it has: two threads on one core share its
 * arithmetic units. A quota below that count is a limit as well: more threads than it pays for are
 * stopped by the kernel for a part of each period. */
/* Processes that share the cores of this one. */
static int n_sharing = 1;

/* The processors that this process may use. False: the system does not tell. */
static bool find_allowed(cpu_set_t *allowed) {
    *allowed = kept;
    return is_kept || sched_getaffinity(0, sizeof *allowed, allowed) == 0;
}

uint64_t mg_core_set_hash(uint64_t hash) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    find_allowed(&allowed);
    return mg_fnv(hash, &allowed, sizeof allowed);
}

void mg_core_count_share(int n) {
    n_sharing = n;
}

int mg_core_count(void) {
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (!find_allowed(&allowed)) return 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET((size_t)core_of((int)cpu), &cores);
    const int n = CPU_COUNT(&cores), quota = mg_cgroup_cpus("");
    const int least = (quota && quota < n ? quota : n) / n_sharing;
    return least > 0 ? least : 1; /* at least the one we run on */
}

/* The number at the beginning of the text; 0 unless it is from 1 to MG_MAX_THREADS, and the text or
 * the character `end` ends it. */
static int read_thread_count(const char *text, char end) {
    char *rest;
    if (!text) return 0;
    const long n = strtol(text, &rest, 10);
    if (rest == text || n < 1 || n > MG_MAX_THREADS) return 0;
    while (isspace((unsigned char)*rest)) rest++;
    return *rest == '\0' || *rest == end ? (int)n : 0;
}

mg_status mg_thread_count_check(void) {
    const char *given = getenv("MGPU_THREADS");
    if (!given || !*given || read_thread_count(given, '\0')) return MG_OK;
    return mg_fail(MG_USAGE,
                   "MGPU_THREADS=%s: the number of threads must be an integer from 1 to %d", given,
                   MG_MAX_THREADS);
}

/* OMP_NUM_THREADS may be a list: the numbers after the first are for nested parallel regions. */
int mg_thread_count(void) {
    int n = read_thread_count(getenv("MGPU_THREADS"), '\0');
    if (!n) n = read_thread_count(getenv("OMP_NUM_THREADS"), ',');
    return n ? n : mg_core_count();
}
