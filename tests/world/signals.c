/* Signals are the program's: a transport installs no handlers, and its threads block signals. Also
 * a process may use the transport from several threads, one at a time.
 *
 *     signals KIND */
#include "peers.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>

enum { SIGNALS = 32 }; /* those with names */

static void on_signal(int number) {
    (void)number;
}

static void read_handlers(struct sigaction *handlers) {
    memset(handlers, 0, SIGNALS * sizeof *handlers);
    for (int s = 1; s < SIGNALS; s++) sigaction(s, NULL, &handlers[s]);
}

/* The mask of blocked signals of a thread of this process. */
static unsigned long long blocked(const char *thread) {
    char path[300], line[128];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "SigBlk:", 7) == 0) mask = strtoull(line + 7, NULL, 16);
    if (file) fclose(file);
    return mask;
}

/* Threads besides this one that do not block both SIGTERM and SIGUSR1. */
static int count_listeners(void) {
    const unsigned long long wanted = 1ull << (SIGTERM - 1) | 1ull << (SIGUSR1 - 1);
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;
    while (threads && (entry = readdir(threads)))
        n += entry->d_name[0] != '.' && atoi(entry->d_name) != getpid() &&
             (blocked(entry->d_name) & wanted) != wanted;
    if (threads) closedir(threads);
    return n;
}

static void *meet(void *p) {
    peers_barrier(p, 1);
    return NULL;
}

int main(int argc, char **argv) {
    struct sigaction before[SIGNALS], after[SIGNALS];
    int changed = 0;
    pthread_t thread;
    signal(SIGUSR1, on_signal);
    read_handlers(before);
    peers p = peers_start(argv[argc - 1]);
    read_handlers(after);
    for (int s = 1; s < SIGNALS; s++) changed += before[s].sa_handler != after[s].sa_handler;
    meet(&p);
    if (pthread_create(&thread, NULL, meet, &p) == 0) pthread_join(thread, NULL);
    meet(&p);
    printf("%d handlers changed, %d threads take signals\n", changed, count_listeners());
    p.api->stop(p.transport, true);
    return 0;
}
