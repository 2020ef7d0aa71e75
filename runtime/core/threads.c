/* The interrupt flag and the count of physical cores. */
#define _GNU_SOURCE
#include "core/threads.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static atomic_bool interrupted;

void mg_interrupt(void) {
    atomic_store(&interrupted, true);
}

bool mg_interrupt_take(void) {
    return atomic_load(&interrupted) && atomic_exchange(&interrupted, false);
}

bool mg_interrupt_pending(void) {
    return atomic_load(&interrupted);
}

double mg_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The lowest-numbered hardware thread of cpu's core, or cpu itself where the system does not say.
 */
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

int mg_core_count(void) {
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET((size_t)core_of((int)cpu), &cores);
    const int n = CPU_COUNT(&cores);
    return n > 0 ? n : 1;
}
