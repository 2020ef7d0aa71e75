/* Interruption and stopping after a save, signals of threads, forks, the clock and waiting by it,
 * and the number of CPU cores. */
#ifndef MG_CORE_THREADS_H
#define MG_CORE_THREADS_H

#include "core/status.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Asks the running computation to stop: safe in a signal handler. */
void mg_interrupt(void);
/* The same, for the handler of a signal, which is remembered. */
void mg_interrupt_by(int signal_number);
/* The signal of the last interrupt, also after it was taken. 0: there was none, or mg_interrupt()
 * made it. */
int mg_interrupt_signal(void);
/* True once after mg_interrupt(): asking clears it. */
bool mg_interrupt_take(void);
/* True after mg_interrupt(), without clearing it. */
bool mg_interrupt_pending(void);

/* A request to save a checkpoint and stop training, which a signal handler may make. After
 * mg_stop_listen(true), a training loop that can save polls for it; earlier requests are forgotten.
 * A request that comes too late becomes an interrupt at mg_stop_listen(false). */
void mg_stop_listen(bool on);
/* Whether the program's Ctrl-C is such a request too, while somebody listens. A second one is not.
 */
void mg_stop_take_interrupts(bool on);
bool mg_stop_takes_interrupts(void);
/* Asks the training to save and stop; `reason` is a signal's number. False if none listens. Safe in
 * a signal handler. */
bool mg_stop_request(int reason);
/* The reason, once mg_stop_request has been called; 0 before. */
int mg_stop_requested(void);
/* The training has saved because of the request. */
void mg_stop_set_saved(void);
/* Whether mg_stop_set_saved was called; the program then ends with the exit status for it. */
bool mg_stop_saved(void);

/* Blocks this thread's signals until mg_signals_release, except those of faults in the code. Calls
 * do not nest. */
void mg_signals_hold(void);
void mg_signals_release(void);
/* Delivers pending signals, at a point between hold and release where handlers may run. */
void mg_signals_admit(void);

/* Signals are the host program's. Between these calls a library may be loaded or started that makes
 * threads and installs handlers: its threads block all signals, and the handlers are replaced by
 * those from before. */
typedef struct mg_signals_kept {
    sigset_t mask;
    struct sigaction handlers[32]; /* of the signals with names */
} mg_signals_kept;
void mg_signals_keep(mg_signals_kept *kept);
void mg_signals_restore(const mg_signals_kept *kept);

/* Starts a thread that blocks all signals: they are for the host program's threads. To be joined or
 * detached. False, with errno: the system could not create a thread. */
bool mg_thread_start(pthread_t *thread, void *(*thread_main)(void *), void *argument);
/* MG_OK if n threads more can be made now: makes them all and ends them. For libraries that end the
 * process if they cannot make a thread. MG_OOM. */
mg_status mg_threads_available(int n);

/* To be called before the process starts its first thread. */
void mg_threads_watch_forks(void);
/* Whether this process was forked from one that had called mg_threads_watch_forks(): the threads of
 * the parent do not exist here, and locks that they held stay locked. */
bool mg_threads_forked(void);
/* A clock that never goes back, in seconds and in nanoseconds. */
double mg_seconds(void);
uint64_t mg_nanoseconds(void);
/* A condition variable for pthread_cond_timedwait with times of mg_time_after. */
void mg_cond_init(pthread_cond_t *condition);
/* The time `seconds` from now, by the clock of mg_seconds. */
struct timespec mg_time_after(double seconds);
/* MGPU_DEADLINE, or 600: the seconds that devices wait for each other, and the caller for them. */
double mg_deadline(void);
/* Physical cores this process may use (its affinity and the CPU quotas of its cgroups respected),
 * at least 1. */
int mg_core_count(void);
/* From here on this process may use 1/n of them: n processes with the same affinity share them. */
void mg_core_count_share(int n);
/* A hash (FNV-1a) that continues with the processors of this process's affinity. */
uint64_t mg_core_set_hash(uint64_t hash);
/* Records this thread's current affinity for mg_core_count. Call it before OpenMP is loaded: with
 * OMP_PROC_BIND, OpenMP binds the thread that loads it to a single core. */
void mg_core_count_keep(void);
/* cgroup.c: the CPU quota of this process's cgroup and of those around it, in CPUs: the smallest
 * counts, rounded up. 0: no limit, or the system does not tell. `root` is put before the paths of
 * /proc and of the cgroups' folders: "" except in tests. */
int mg_cgroup_cpus(const char *root);
/* The largest number of threads that the environment may ask for: glibc's CPU_SETSIZE, which also
 * bounds mg_core_count. */
enum { MG_MAX_THREADS = 1024 };
/* MG_USAGE if MGPU_THREADS is set and is not a number from 1 to MG_MAX_THREADS. */
mg_status mg_thread_count_check(void);
/* The threads that the cpu devices of this process may have together: MGPU_THREADS, or the first
 * number of OMP_NUM_THREADS, or the number of cores. A wrong value is ignored. */
int mg_thread_count(void);

#endif
