/* Threads of OpenMP, simulated: how evenly do parallel regions share their work on machines with
 * more cores than this one?
 *
 * Loaded before libgomp (LD_PRELOAD), this library runs each parallel region as a team of
 * coroutines on one thread, one after another, from barrier to barrier. So a region computes what
 * it always does, and each member's processor time is that of its own work. A region takes as long
 * as the slowest member between two barriers; chunks of a dynamic schedule go to the member that
 * would be free first. oneDNN runs with one thread.
 *
 * A step runs several times, with the same phases (from barrier to barrier) each time. A member's
 * time in a phase is the least of all steps, since other work on the machine only adds to it. Where
 * chunks were dealt out, who got more of them differs from step to step, so there it is the least
 * time of the slowest member, of the second slowest, and so on. Only what gcc's code calls for
 * mgpu-cpu is here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

enum { MAX_TEAM = 256, MAX_LOOPS = 64, MAX_PHASES = 1024, STACK = 2 << 20 };

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

/* Of the present step: the work of all members, and oneDNN's. */
static double total, library;

static struct phase {
    int size;              /* members */
    double busy[MAX_TEAM]; /* seconds, the least of all steps */
} phases[MAX_PHASES];
static int n_phases; /* of the present step, so far */
static bool recording;

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

static int longer_first(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Takes what the members have done since the last barrier to the phase. */
static void record_phase(bool dealt) {
    double busy[MAX_TEAM];
    if (!recording) return;
    if (n_phases == MAX_PHASES) abort();
    struct phase *p = &phases[n_phases++];
    for (int i = 0; i < size; i++) total += busy[i] = team[i].busy;
    if (dealt) qsort(busy, (size_t)size, sizeof *busy, longer_first);
    for (int i = 0; i < size; i++)
        if (p->size == 0 || busy[i] < p->busy[i]) p->busy[i] = busy[i];
    p->size = size;
}

/* Runs the team until all members are at a barrier or done; true if all are done. */
static bool run_phase(void) {
    bool dealt = false;
    int done = 0;
    for (int i = 0; i < size; i++)
        if (team[i].state == READY) resume(i);
    for (int i; (i = first_to_ask()) >= 0;) {
        dealt = true;
        team[i].got = take_chunk(&team[i]);
        resume(i);
    }
    record_phase(dealt);
    for (int i = 0; i < size; i++) {
        team[i].busy = 0;
        if (team[i].state == DONE) done++;
        if (team[i].state == AT_BARRIER) team[i].state = READY;
    }
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

/* Forgets all steps, and records none until the next begins. */
void team_reset(void) {
    for (int i = 0; i < MAX_PHASES; i++) phases[i].size = 0;
    recording = false;
}

void team_begin_step(void) {
    total = library = 0;
    n_phases = 0;
    recording = true;
}

/* Seconds of oneDNN in this step, which the total has not. */
double team_library(void) {
    return library;
}

/* The work of all members in this step, in seconds. */
double team_total(void) {
    return total;
}

/* The work of all members if each had as much to do as the slowest of its phase, over what it is.
 */
double team_balance(void) {
    double all = 0, longest = 0;
    for (const struct phase *p = phases; p < phases + n_phases; p++) {
        double slowest = 0;
        for (int i = 0; i < p->size; i++) {
            all += p->busy[i];
            if (p->busy[i] > slowest) slowest = p->busy[i];
        }
        longest += slowest * p->size;
    }
    return all > 0 ? longest / all : 1;
}
