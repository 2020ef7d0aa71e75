/* Threads of OpenMP, simulated: how evenly do parallel regions share their work on machines with
 * more cores than this one?
 *
 * Loaded before libgomp (LD_PRELOAD), this library runs each parallel region as a team of
 * coroutines on one thread, one after another, from barrier to barrier. So a region computes what it
 * always does, and each member's processor time is that of its own work. A region takes as long as
 * the slowest member between two barriers; chunks of a dynamic schedule go to the member that would
 * be free first. oneDNN runs with one thread. Only what gcc's code calls for mgpu-cpu is here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

enum { MAX_TEAM = 256, MAX_LOOPS = 64, STACK = 2 << 20 };

typedef enum member_state { READY, WANTS_CHUNK, AT_BARRIER, DONE } member_state;

typedef struct member {
    ucontext_t context;
    void *stack; /* owned, kept for the next region */
    member_state state;
    double busy;        /* seconds since the last barrier */
    int loops;          /* dynamic loops it has begun in this region */
    long *first, *last; /* where it wants its chunk */
    bool got;
} member;

typedef struct loop {
    bool begun;
    long next, end, step, chunk;
} loop;

static int wanted = 1;     /* threads of a region that does not name their number */
static int size = 1, self; /* of the running region */
static bool inside;
static member team[MAX_TEAM];
static loop loops[MAX_LOOPS];
static ucontext_t scheduler;
static double resumed; /* when the running member was */
static void (*work)(void *);
static void *work_data;

/* Since the last reset: the work of all members, what it would be if all had as much to do as the
 * slowest one, and oneDNN's. */
static double total, longest, library;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Gives the turn back to the scheduler. */
static void yield(member_state state) {
    member *m = &team[self];
    m->busy += now() - resumed;
    m->state = state;
    swapcontext(&m->context, &scheduler);
}

static void resume(int i) {
    self = i;
    resumed = now();
    swapcontext(&scheduler, &team[i].context);
}

static void member_main(void) {
    work(work_data);
    yield(DONE);
}

/* Takes a chunk of the member's loop; false at its end. */
static bool take_chunk(member *m) {
    loop *l = &loops[(m->loops - 1) % MAX_LOOPS];
    if (l->step > 0 ? l->next >= l->end : l->next <= l->end) return false;
    *m->first = l->next;
    l->next += l->chunk * l->step;
    if (l->step > 0 ? l->next > l->end : l->next < l->end) l->next = l->end;
    *m->last = l->next;
    return true;
}

/* The member that would be the first to ask for a chunk, or -1. */
static int first_to_ask(void) {
    int best = -1;
    for (int i = 0; i < size; i++)
        if (team[i].state == WANTS_CHUNK && (best < 0 || team[i].busy < team[best].busy)) best = i;
    return best;
}

/* Runs the team until all members are at a barrier or done; true if all are done. */
static bool run_phase(void) {
    double slowest = 0;
    int done = 0;
    for (int i = 0; i < size; i++)
        if (team[i].state == READY) resume(i);
    for (int i; (i = first_to_ask()) >= 0;) {
        team[i].got = take_chunk(&team[i]);
        resume(i);
    }
    for (int i = 0; i < size; i++) {
        total += team[i].busy;
        if (team[i].busy > slowest) slowest = team[i].busy;
        team[i].busy = 0;
        if (team[i].state == DONE) done++;
        if (team[i].state == AT_BARRIER) team[i].state = READY;
    }
    longest += slowest * size; /* in the same unit as the total: seconds of all members */
    return done == size;
}

static void begin_member(member *m) {
    if (!m->stack)
        m->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->stack == MAP_FAILED) abort();
    getcontext(&m->context);
    m->context.uc_stack.ss_sp = m->stack;
    m->context.uc_stack.ss_size = STACK;
    m->context.uc_link = NULL;
    makecontext(&m->context, member_main, 0);
    m->state = READY;
    m->busy = 0;
    m->loops = 0;
}

/* ---- what the compiler's code calls ---- */

/* A region in a region has one thread, as usual. */
static void run_alone(void (*fn)(void *), void *data) {
    const int outer_size = size, outer_self = self;
    const bool outer = inside;
    size = 1, self = 0, inside = true;
    fn(data);
    size = outer_size, self = outer_self, inside = outer;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags) {
    (void)flags;
    const int members = threads ? (int)threads : wanted;
    if (inside || members <= 1 || members > MAX_TEAM) {
        run_alone(fn, data);
        return;
    }
    work = fn, work_data = data;
    size = members, inside = true;
    for (int i = 0; i < MAX_LOOPS; i++) loops[i].begun = false;
    for (int i = 0; i < members; i++) begin_member(&team[i]);
    while (!run_phase()) continue;
    size = 1, self = 0, inside = false;
}

void GOMP_barrier(void) {
    if (size > 1) yield(AT_BARRIER);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *first, long *last) {
    member *m = &team[self];
    m->first = first;
    m->last = last;
    if (size == 1) return take_chunk(m);
    yield(WANTS_CHUNK);
    return m->got;
}

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *first,
                                          long *last) {
    loop *l = &loops[team[self].loops++ % MAX_LOOPS];
    if (size == 1 || !l->begun) *l = (loop){true, start, end, step, chunk};
    return GOMP_loop_nonmonotonic_dynamic_next(first, last);
}

void GOMP_loop_end(void) {
    GOMP_barrier();
}

void GOMP_loop_end_nowait(void) {}

int omp_get_num_threads(void) {
    return size;
}

int omp_get_thread_num(void) {
    return self;
}

/* Only oneDNN asks. The threads of its regions wait for each other in generated code, which
 * coroutines cannot, so it has one. */
int omp_get_max_threads(void) {
    return 1;
}

int omp_in_parallel(void) {
    return inside;
}

void omp_set_num_threads(int n) {
    wanted = n;
}

/* ---- oneDNN, outside of regions ---- */

/* A function of the library that mgpu-cpu has opened. */
static void *find(const char *function) {
    static const char *const names[] = {"libdnnl.so.2", "libdnnl.so.3"};
    void *opened = NULL;
    for (int i = 0; i < 2 && !opened; i++) opened = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    void *found = opened ? dlsym(opened, function) : NULL;
    if (!found) abort();
    return found;
}

int dnnl_primitive_execute(void *primitive, void *stream, int n, const void *arguments) {
    static int (*real)(void *, void *, int, const void *);
    if (!real) *(void **)&real = find("dnnl_primitive_execute");
    const double start = now();
    const int status = real(primitive, stream, n, arguments);
    if (!inside) library += now() - start;
    return status;
}

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    static int (*real)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                       const float *, int64_t, float, float *, int64_t);
    if (!real) *(void **)&real = find("dnnl_sgemm");
    const double start = now();
    const int status = real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (!inside) library += now() - start;
    return status;
}

/* ---- what the benchmark asks ---- */

void team_reset(void) {
    total = longest = library = 0;
}

/* Seconds of oneDNN, which the total has not. */
double team_library(void) {
    return library;
}

/* The work of all members, in seconds. */
double team_total(void) {
    return total;
}

/* The same if all members had as much to do as the slowest of them. */
double team_longest(void) {
    return longest;
}
