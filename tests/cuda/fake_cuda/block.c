/* Runs kernels: the blocks of a grid one after another, the threads of a block as fibers (fiber.h).
 *
 * A fiber runs one thread after another to its end, until one has to wait at a barrier. Then
 * another fiber runs: one whose thread may continue, else a fresh one with the next thread that has
 * not begun. So a kernel without barriers is a plain loop on one stack, and only waiting threads
 * need stacks. The last thread to arrive at a barrier makes the others runnable. If all threads
 * that have not ended wait, and none is runnable, then some thread did not come to the barrier; on
 * a GPU that is undefined behaviour, here it is an error with the kernel's name.
 *
 * Errors that are found: such barriers, warp functions called by a part of a warp, writes beyond
 * dynamic shared memory, wild addresses (by SIGSEGV), stack overruns. Shared memory is filled with
 * NaN at first. With MGPU_FAKE_CUDA_ORDER=backwards threads and blocks run in the opposite order,
 * so that results that depend on the order (races) change. */
#define _GNU_SOURCE
#include "fiber.h"
#include "gpu.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* GUARD: bytes behind dynamic shared memory that no kernel may write. EMPTY: the byte that shared
 * memory is filled with; the pattern is NaN in every float format. */
enum { THREADS = 1024, WARP = 32, GUARD = 256, EMPTY = 0xff, FULL_MASK = -1 };

typedef struct thread {
    fake_cuda_index index;
    fake_cuda_place place; /* where it continues after a barrier */
    unsigned turn;         /* which half of the warp's cells its next exchange uses */
} thread;

typedef struct warp {
    int waiting; /* threads that wait for the others of the warp */
    struct {
        char bytes[16];
    } cell[2][WARP]; /* values of an exchange; two sets in turn, so that a fast lane cannot
                        overwrite what a slower one has yet to read */
} warp;

struct fake_cuda_position fake_cuda_at;
unsigned char *fake_cuda_dynamic;

/* The state of the running block. The holder of `busy` owns it: there is one kernel at a time. */
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static thread threads[THREADS];
static warp warps[THREADS / WARP];
static int n, started, ended, waiting; /* threads of the block: all, begun, ended, at its barrier */
static int self;                       /* the thread that runs */
static int queue[THREADS], queue_first, queue_length; /* a ring of the threads that may continue */
static int stacks[FAKE_CUDA_STACKS], n_stacks;        /* the free stacks */
static int current_stack;
static fake_cuda_place outside; /* in run_block, which continues when the block is done */
static const fake_cuda_kernel *kernel;
static const void *params;
static const char *problem; /* what the kernel did wrong; NULL: nothing */
static bool backwards;
static sigjmp_buf escape; /* target of the jump out of SIGSEGV's handler */
static pthread_t runner;  /* the host thread that runs the kernel */

/* ---- taking turns ---- */

/* The number of the i-th of n threads or blocks to run: i, or counted from the end if the order is
 * backwards. */
static int nth(int i, int of) {
    return backwards ? of - 1 - i : i;
}

/* From now on the running code is thread t: threadIdx is its index. */
static void become(int t) {
    self = t;
    fake_cuda_at.thread = threads[t].index;
}

/* Queues the threads first .. end - 1, except the running one, which simply continues. */
static void make_runnable(int first, int end) {
    for (int i = 0; i < end - first; i++) {
        const int t = first + nth(i, end - first);
        if (t != self) queue[(queue_first + queue_length++) % THREADS] = t;
    }
}

static int take_runnable(void) {
    const int t = queue[queue_first];
    queue_first = (queue_first + 1) % THREADS;
    queue_length--;
    return t;
}

/* Called by the loop of KERNEL (cuda_as_c.h) when a thread has ended: true if the same fiber shall
 * run the next thread, which threadIdx now names. */
bool fake_cuda_next_thread(void) {
    ended++;
    if (started == n) return false;
    become(nth(started++, n));
    return true;
}

/* The code of a fiber: runs threads until none is left to begin, then hands over control for the
 * last time. */
static void fiber(void) {
    fake_cuda_place nowhere;
    become(nth(started++, n));
    kernel->run(params);
    if (!fake_cuda_stack_is_whole(current_stack)) problem = "overran its stack";
    stacks[n_stacks++] = current_stack; /* free although this code still runs on it: no other fiber
                                           runs before the switch */
    fake_cuda_switch(&nowhere, queue_length ? &threads[take_runnable()].place : &outside);
}

/* Suspends the running thread until it was made runnable and its turn has come. */
static void wait_for_others(void) {
    const int me = self, my_stack = current_stack;
    fake_cuda_place fresh, *to = &outside;
    if (queue_length > 0) {
        to = &threads[take_runnable()].place;
    } else if (started < n) {
        current_stack = stacks[--n_stacks];
        fake_cuda_begin(&fresh, current_stack, fiber);
        to = &fresh;
    }
    fake_cuda_switch(&threads[me].place, to);
    become(me);
    current_stack = my_stack;
}

/* ---- what kernels call ---- */

/* Ends the block with an error: control goes to run_block and never comes back. */
static void give_up(const char *why) {
    fake_cuda_place nowhere;
    problem = why;
    fake_cuda_switch(&nowhere, &outside);
}

void fake_cuda_sync_threads(void) {
    if (++waiting < n) {
        wait_for_others();
        return;
    }
    waiting = 0;
    make_runnable(0, n);
}

void fake_cuda_sync_warp(unsigned mask) {
    warp *w = &warps[self / WARP];
    const int first = self / WARP * WARP;
    if (mask != (unsigned)FULL_MASK) give_up("calls a warp's function with less than a full mask");
    if (n - first < WARP) give_up("calls a warp's function in a block without whole warps");
    if (++w->waiting < WARP) {
        wait_for_others();
        return;
    }
    w->waiting = 0;
    make_runnable(first, first + WARP);
}

int fake_cuda_lane(void) {
    return self % WARP;
}

void fake_cuda_shuffle(unsigned mask, void *value, size_t bytes, int lane) {
    warp *w = &warps[self / WARP];
    const unsigned turn = threads[self].turn ^= 1u;
    memcpy(w->cell[turn][self % WARP].bytes, value, bytes);
    fake_cuda_sync_warp(mask);
    if (lane >= 0 && lane < WARP) memcpy(value, w->cell[turn][lane].bytes, bytes);
}

/* A shuffle of votes; then every lane reads all votes of the exchange. */
unsigned fake_cuda_ballot(unsigned mask, int predicate) {
    const warp *w = &warps[self / WARP];
    const char vote = predicate != 0;
    unsigned votes = 0;
    char mine = vote;
    fake_cuda_shuffle(mask, &mine, 1, self % WARP);
    for (unsigned i = 0; i < WARP; i++)
        votes |= (unsigned)w->cell[threads[self].turn][i].bytes[0] << i;
    return votes;
}

/* ---- one block ---- */

/* Runs the block fake_cuda_at.block, and returns the description of its error, or NULL. */
static CUresult run_block(unsigned shared) {
    started = ended = waiting = queue_first = queue_length = 0;
    for (int w = 0; w < THREADS / WARP; w++) warps[w].waiting = 0;
    memset(fake_cuda_dynamic, EMPTY, shared + (size_t)GUARD);
    fake_cuda_place first;
    current_stack = stacks[--n_stacks];
    fake_cuda_begin(&first, current_stack, fiber);
    fake_cuda_switch(&outside, &first);
    if (!problem && ended < n) problem = "has a barrier that not all threads reach";
    for (int i = 0; i < GUARD && !problem; i++)
        if (fake_cuda_dynamic[shared + (unsigned)i] != EMPTY)
            problem = "writes beyond the block's dynamic shared memory";
    if (!problem) return CUDA_SUCCESS;
    const struct fake_cuda_position *at = &fake_cuda_at;
    return fake_cuda_say(CUDA_ERROR_LAUNCH_FAILED, "kernel %s %s (block %u, %u, %u of %u threads)",
                         kernel->name, problem, at->block.x, at->block.y, at->block.z, (unsigned)n);
}

/* ---- the grid ---- */

static void set_threads(fake_cuda_index size) {
    n = (int)(size.x * size.y * size.z);
    for (int t = 0; t < n; t++) {
        const unsigned i = (unsigned)t;
        threads[t].index = (fake_cuda_index){i % size.x, i / size.x % size.y, i / size.x / size.y};
        threads[t].turn = 0;
    }
}

static struct sigaction before[3];
static const int caught[3] = {SIGSEGV, SIGBUS, SIGFPE};

/* A wild address in a kernel ends the kernel. A signal of any other thread goes to the handler that
 * was there before: it is restored, and the instruction faults again. */
static void on_signal(int number, siginfo_t *info, void *context) {
    (void)info;
    (void)context;
    if (pthread_equal(pthread_self(), runner)) siglongjmp(escape, number);
    for (int i = 0; i < 3; i++)
        if (caught[i] == number) sigaction(number, &before[i], NULL); /* and it happens again */
}

static void catch_signals(bool on) {
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO;
    for (int i = 0; i < 3; i++)
        if (on)
            sigaction(caught[i], &ours, &before[i]);
        else
            sigaction(caught[i], &before[i], NULL);
}

static CUresult run_blocks(fake_cuda_index blocks, unsigned shared) {
    const uint64_t all = (uint64_t)blocks.x * blocks.y * blocks.z;
    CUresult r = CUDA_SUCCESS;
    for (uint64_t i = 0; i < all && r == CUDA_SUCCESS; i++) {
        const uint64_t b = backwards ? all - 1 - i : i, row = b / blocks.x;
        fake_cuda_at.block = (fake_cuda_index){(unsigned)(b % blocks.x), (unsigned)(row % blocks.y),
                                               (unsigned)(row / blocks.y)};
        r = run_block(shared);
    }
    return r;
}

/* Like run_blocks, with signals turned into errors. After a signal the fibers' stacks are simply
 * dropped. */
static CUresult run_guarded(fake_cuda_index blocks, unsigned shared) {
    const struct fake_cuda_position *at = &fake_cuda_at;
    if (sigsetjmp(escape, 1) == 0) return run_blocks(blocks, shared);
    return fake_cuda_say(CUDA_ERROR_ILLEGAL_ADDRESS,
                         "kernel %s: an illegal address (block %u, %u, %u, thread %u, %u, %u)",
                         kernel->name, at->block.x, at->block.y, at->block.z, at->thread.x,
                         at->thread.y, at->thread.z);
}

CUresult fake_cuda_run(const fake_cuda_kernel *k, fake_cuda_index blocks, fake_cuda_index size,
                       unsigned shared, const void *arguments) {
    static _Alignas(128) unsigned char memory[FAKE_CUDA_SHARED_MOST + GUARD];
    pthread_mutex_lock(&busy);
    runner = pthread_self();
    kernel = k;
    params = arguments;
    problem = NULL;
    const char *order = getenv("MGPU_FAKE_CUDA_ORDER");
    backwards = order && strcmp(order, "backwards") == 0;
    memset(k->shared, EMPTY, (size_t)(k->shared_end - k->shared));
    fake_cuda_dynamic = memory;
    fake_cuda_at.threads = size;
    fake_cuda_at.blocks = blocks;
    set_threads(size);
    for (n_stacks = 0; n_stacks < FAKE_CUDA_STACKS; n_stacks++) stacks[n_stacks] = n_stacks;
    catch_signals(true);
    const CUresult r = run_guarded(blocks, shared);
    catch_signals(false);
    pthread_mutex_unlock(&busy);
    return r == CUDA_SUCCESS ? r : fake_cuda_fatal(r);
}
