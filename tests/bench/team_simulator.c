/* Threads of OpenMP, simulated: how evenly do parallel regions share their work on machines with
 * more cores than this one?
 *
 * Loaded before libgomp (LD_PRELOAD), this library runs each parallel region as a team of
 * coroutines on one thread, one after another, from barrier to barrier. So a region computes what
 * it always does, and the work of each member can be counted. A region takes as long as the slowest
 * member between two barriers; chunks of a dynamic schedule go to the member that would be free
 * first.
 *
 * Work is not timed but counted, so that it is the same in each run: in bytes of machine code that
 * were run. The plug-in mgpu-cpu is built with `make MODE=count`, in which the compiler
 * (-fsanitize-coverage=trace-pc) puts a call of __sanitizer_cov_trace_pc at the beginning of each
 * basic block; it counts the bytes up to the next such call. The calls keep the compiler from
 * vectorising loops by itself and make it store vectors, so bytes of two loops are not comparable
 * as times are, but the members of a team run the same loops. memcpy and memset are counted by
 * their bytes. The C library's mathematics and oneDNN, which runs with one thread, are not counted.
 * Only what gcc's code calls for mgpu-cpu is here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MAX_TEAM = 256, MAX_LOOPS = 64, STACK = 2 << 20, LONGEST_BLOCK = 4000 };

typedef enum member_state { READY, WANTS_CHUNK, AT_BARRIER, DONE } member_state;

typedef struct member {
    ucontext_t context;
    void *stack; /* owned, kept for the next region */
    member_state state;
    uint64_t work;      /* since the last barrier */
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
static uint64_t resumed; /* the work done before the running member went on */
static void (*region)(void *);
static void *region_data;

/* Since team_begin: all work, and that of the teams; what the latter would be if each member had as
 * much to do as the slowest of its phase, from barrier to barrier. */
static uint64_t all, shared, longest;
static bool show_phases;

/* ---- counting ---- */

static uintptr_t code, code_end; /* of the plug-in */
static uint16_t *block_bytes;    /* by the place to which a call at a block's beginning returns */

/* Finds the code of the plug-in, to which an address belongs. */
static int find_code(struct dl_phdr_info *library, size_t bytes, void *address) {
    (void)bytes;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        const uintptr_t from = library->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || (uintptr_t)address - from >= part->p_memsz) continue;
        code = from;
        code_end = from + part->p_memsz;
    }
    return code != 0;
}

/* The address that the call before a return address calls. */
static uintptr_t called_from(uintptr_t after) {
    int32_t distance;
    memcpy(&distance, (void *)(after - 4), sizeof distance);
    return after + (uintptr_t)(intptr_t)distance;
}

/* Measures the blocks: the calls of the function that the block before `after` calls. */
static void measure_blocks(uintptr_t after) {
    enum { CALL = 0xe8, CALL_BYTES = 5 };
    dl_iterate_phdr(find_code, (void *)after);
    const size_t bytes = (code_end - code + 1) * sizeof *block_bytes;
    block_bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block_bytes == MAP_FAILED) abort();
    uintptr_t next = code_end;
    for (uintptr_t at = code_end - CALL_BYTES; at >= code; at--) {
        const uintptr_t block = at + CALL_BYTES;
        if (*(unsigned char *)at != CALL || called_from(block) != called_from(after)) continue;
        const uintptr_t n = next - block;
        block_bytes[block - code] = n < LONGEST_BLOCK ? (uint16_t)n : LONGEST_BLOCK;
        next = at;
    }
}

static bool is_in_plugin(uintptr_t address) {
    return address - code < code_end - code;
}

/* Called at the beginning of each basic block of the plug-in. A block that only returns jumps here
 * and has another function's return address: it is not counted. */
void __sanitizer_cov_trace_pc(void) {
    const uintptr_t after = (uintptr_t)__builtin_return_address(0);
    if (!block_bytes) measure_blocks(after);
    if (is_in_plugin(after)) all += block_bytes[after - code];
}

/* What moving n bytes costs, if the plug-in's code at `after` asks for it. */
static void count_bytes(void *after, size_t n) {
    enum { CALL = 32, BYTES_PER_BYTE_OF_CODE = 4 };
    if (is_in_plugin((uintptr_t)after)) all += CALL + n / BYTES_PER_BYTE_OF_CODE;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    count_bytes(__builtin_return_address(0), n);
    return memmove(to, from, n);
}

void *memset(void *to, int byte, size_t n) {
    void *at = to;
    count_bytes(__builtin_return_address(0), n);
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
    return to;
}

/* ---- running a team ---- */

/* Gives the turn back to the scheduler. */
static void yield(member_state state) {
    member *m = &team[self];
    m->work += all - resumed;
    m->state = state;
    swapcontext(&m->context, &scheduler);
}

static void resume(int i) {
    self = i;
    resumed = all;
    swapcontext(&scheduler, &team[i].context);
}

static void member_main(void) {
    region(region_data);
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
        if (team[i].state == WANTS_CHUNK && (best < 0 || team[i].work < team[best].work)) best = i;
    return best;
}

/* Adds what the members have done since the last barrier to the sums. */
static void record_phase(void) {
    uint64_t sum = 0, most = 0;
    for (int i = 0; i < size; i++) {
        sum += team[i].work;
        if (team[i].work > most) most = team[i].work;
        team[i].work = 0;
    }
    shared += sum;
    longest += most * (uint64_t)size;
    Dl_info in;
    if (show_phases && dladdr((void *)(uintptr_t)region, &in))
        fprintf(stderr, "phase %zx %llu %.3f\n", (size_t)region - (size_t)in.dli_fbase,
                (unsigned long long)sum, sum ? (double)most * size / (double)sum : 1);
}

/* Runs the team until all members are at a barrier or done; true if all are done. */
static bool run_phase(void) {
    int done = 0;
    for (int i = 0; i < size; i++)
        if (team[i].state == READY) resume(i);
    for (int i; (i = first_to_ask()) >= 0;) {
        team[i].got = take_chunk(&team[i]);
        resume(i);
    }
    record_phase();
    for (int i = 0; i < size; i++) {
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
    m->work = 0;
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
    region = fn, region_data = data;
    size = members, inside = true;
    for (int i = 0; i < MAX_LOOPS; i++) loops[i].begun = false;
    for (int i = 0; i < members; i++) begin_member(&team[i]);
    while (!run_phase()) continue;
    size = 1, self = 0, inside = false;
}

void GOMP_barrier(void) {
    if (size > 1) yield(AT_BARRIER);
}

bool GOMP_single_start(void) {
    return self == 0;
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

/* ---- what the benchmark asks ---- */

/* Begins to count. */
void team_begin(bool show) {
    all = shared = longest = 0;
    show_phases = show;
}

void team_end(void) {
    show_phases = false;
}

/* The work of all members. */
double team_shared(void) {
    return (double)shared;
}

/* The work of all members if each had as much to do as the slowest of its phase. */
double team_longest(void) {
    return (double)longest;
}

/* The work outside of teams. */
double team_alone(void) {
    return (double)(all - shared);
}
