/* The ranks of a fake NCCL communicator: shared memory for barriers, pieces of collectives and
 * messages.
 *
 * A unique id is the path of a file, which each rank maps; the last one to join unlinks it. Mutex
 * and condition variable work across processes; the mutex is robust, so a process that dies with it
 * held does not stop the others. See nccl_team.h. */
#include "nccl_team.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct member {
    pid_t pid; /* 0: has not joined */
    int gpu;
    bool left, aborted; /* ended in order; gave up */
} member;

typedef struct box { /* a piece of a message on its way */
    size_t full;     /* bytes in it; 0: empty */
    char data[TEAM_ROOM];
} box;

struct team {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long changes, round;    /* counts every change; counts the meetings */
    int n, joined, arrived; /* ranks; those that joined; those at the current meeting */
    long registrations;     /* counts the meetings of captures */
    int registering;        /* ranks at the current one */
    member members[TEAM_MOST];
    char shown[TEAM_MOST][TEAM_ROOM]; /* the piece of each rank in a collective */
    box boxes[TEAM_MOST][TEAM_MOST];  /* [from][to] */
};

/* ---- the file ---- */

/* Maps the file at `path`, made new with O_CREAT; NULL on failure. */
static team *map(const char *path, int flags) {
    const int file = open(path, flags, 0600);
    void *mapped = MAP_FAILED;
    if (file < 0) return NULL;
    if (!(flags & O_CREAT) || ftruncate(file, sizeof(team)) == 0)
        mapped = mmap(NULL, sizeof(team), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* The file is named after the process and a count, so each call gives a new one. */
bool team_make(ncclUniqueId *id) {
    static int made;
    const char *folder = getenv("TMPDIR");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%.80s/fake_cuda-nccl-%d-%d",
             folder && *folder ? folder : "/tmp", (int)getpid(),
             __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST));
    team *t = map(id->internal, O_RDWR | O_CREAT | O_EXCL);
    if (!t) return false;
    pthread_mutexattr_t lock;
    pthread_condattr_t change;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&lock, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&t->mutex, &lock);
    pthread_condattr_init(&change);
    pthread_condattr_setpshared(&change, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&t->changed, &change);
    munmap(t, sizeof *t);
    return true;
}

/* ---- members ---- */

/* If a process died with the mutex held, its state is still usable: take it over. */
static void lock(team *t) {
    if (pthread_mutex_lock(&t->mutex) == EOWNERDEAD) pthread_mutex_consistent(&t->mutex);
}

static void unlock(team *t) {
    pthread_mutex_unlock(&t->mutex);
}

/* Wakes all who wait for a change. With the lock held. */
static void change(team *t) {
    t->changes++;
    pthread_cond_broadcast(&t->changed);
}

/* The last rank to join removes the name of the file; the mappings stay. */
team *team_join(const ncclUniqueId *id, int n, int rank, int gpu) {
    team *t = map(id->internal, O_RDWR);
    if (!t) return NULL;
    lock(t);
    t->n = n;
    /* A rank is present from here on: team_state looks at its process. */
    t->members[rank] = (member){.pid = getpid(), .gpu = gpu};
    if (++t->joined == n) unlink(id->internal);
    change(t);
    unlock(t);
    return t;
}

int team_size(const team *t) {
    return t->n;
}

/* Whether a rank ended without leaving: it aborted, or its process died, which the real NCCL learns
 * from the network. With the lock held. */
static bool is_gone(const member *m) {
    return m->pid && !m->left && (m->aborted || (kill(m->pid, 0) != 0 && errno == ESRCH));
}

/* Two ranks on one GPU are refused, as by the real NCCL. */
ncclResult_t team_state(team *t, int rank) {
    ncclResult_t state = ncclSuccess;
    lock(t);
    if (t->joined < t->n) state = ncclInProgress;
    for (int k = 0; k < t->n; k++) {
        const member *own = &t->members[rank], *m = &t->members[k];
        if (k != rank && m->pid && m->gpu == own->gpu) state = ncclInvalidUsage;
        if (k != rank && is_gone(m)) state = ncclRemoteError;
    }
    unlock(t);
    return state;
}

void team_leave(team *t, int rank) {
    lock(t);
    t->members[rank].left = true;
    unlock(t);
}

void team_abort(team *t, int rank) {
    lock(t);
    t->members[rank].aborted = true;
    change(t);
    unlock(t);
}

/* ---- waiting ---- */

/* Waits for a change, at most 0.1 s: a process may die before it signals one. With the lock
 * held. */
static void wait_a_moment(team *t) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    /* The condition variable returns with the mutex, also if its last owner died. */
    if (pthread_cond_timedwait(&t->changed, &t->mutex, &until) == EOWNERDEAD)
        pthread_mutex_consistent(&t->mutex);
}

bool team_wait(team *t, int rank, long *seen) {
    lock(t);
    while (t->changes == *seen && !t->members[rank].aborted) wait_a_moment(t);
    *seen = t->changes;
    const bool aborted = t->members[rank].aborted;
    unlock(t);
    return !aborted;
}

/* `round` tells this meeting from the next one, which fast ranks may already wait for. */
bool team_meet(team *t, int rank) {
    lock(t);
    const long round = t->round;
    if (++t->arrived == t->n) { /* the last one: all continue */
        t->arrived = 0;
        t->round++;
        change(t);
    }
    while (t->round == round && !t->members[rank].aborted) wait_a_moment(t);
    const bool met = t->round != round;
    unlock(t);
    return met;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool team_register(team *t, int rank, double seconds) {
    const double until = seconds_now() + seconds;
    lock(t);
    const long round = t->registrations;
    if (++t->registering == t->n) {
        t->registering = 0;
        t->registrations++;
        change(t);
    }
    while (t->registrations == round && !t->members[rank].aborted && seconds_now() < until)
        wait_a_moment(t);
    const bool met = t->registrations != round;
    if (!met) t->registering--;
    unlock(t);
    return met;
}

char *team_shown(team *t, int k) {
    return t->shown[k];
}

/* ---- messages ---- */

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* A box holds one piece: the next is sent when the receiver has emptied it. */
size_t team_send(team *t, int from, int to, const char *data, size_t bytes) {
    box *b = &t->boxes[from][to];
    const size_t n = least(bytes, TEAM_ROOM);
    lock(t);
    const bool empty = b->full == 0;
    if (empty) {
        memcpy(b->data, data, n);
        b->full = n;
        change(t);
    }
    unlock(t);
    return empty ? n : 0;
}

/* Takes all that is in the box: both sides cut messages in the same places. */
size_t team_take(team *t, int from, int to, char *data, size_t bytes) {
    box *b = &t->boxes[from][to];
    lock(t);
    const size_t n = least(b->full, bytes);
    if (n) {
        memcpy(data, b->data, n);
        b->full = 0;
        change(t);
    }
    unlock(t);
    return n;
}

bool team_taken(team *t, int from, int to) {
    lock(t);
    const bool taken = t->boxes[from][to].full == 0;
    unlock(t);
    return taken;
}
