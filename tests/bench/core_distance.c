/* How far apart are the cores? Prints the nanoseconds that a cache line takes from one core to
 * another: about 20 to 40 if they share a cache, 100 and more if they do not.
 *
 *     core_distance N
 *
 * Two threads, each bound to a core, pass a flag in one cache line back and forth. Of the first N
 * cores that this process may use, the first is measured with each other one; the largest time is
 * printed. On a virtual machine the answer changes while programs run, because the host may move
 * a virtual core to another core. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURNS = 3000, TIMES = 5, MINE = 0, YOURS, END };

static _Alignas(128) atomic_int turn;

static double nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bind_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *answer(void *cpu) {
    bind_to(*(int *)cpu);
    for (;;) {
        int now;
        while ((now = atomic_load(&turn)) == MINE) {
        }
        if (now == END) return NULL;
        atomic_store(&turn, MINE);
    }
}

static int compare(const void *a, const void *b) {
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

/* The median time from this thread's core to another. The first measurements, while the other core
 * wakes up, are too long. */
static double measure(int cpu) {
    pthread_t other;
    double ns[TIMES];
    atomic_store(&turn, MINE);
    if (pthread_create(&other, NULL, answer, &cpu)) return 0;
    for (int i = 0; i < TIMES; i++) {
        const double start = nanoseconds();
        for (int k = 0; k < TURNS; k++) {
            atomic_store(&turn, YOURS);
            while (atomic_load(&turn) != MINE) {
            }
        }
        ns[i] = (nanoseconds() - start) / TURNS / 2;
    }
    atomic_store(&turn, END);
    pthread_join(other, NULL);
    qsort(ns, TIMES, sizeof *ns, compare);
    return ns[TIMES / 2];
}

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : 2, first = -1;
    double largest = 0;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE && left > 0; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        left--;
        if (first < 0) {
            bind_to(first = cpu);
        } else {
            const double ns = measure(cpu);
            if (ns > largest) largest = ns;
        }
    }
    if (largest == 0) return 1; /* one core */
    printf("%.0f\n", largest);
    return 0;
}
