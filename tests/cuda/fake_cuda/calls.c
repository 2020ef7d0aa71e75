/* Counters of calls, and failures on request.
 *
 * Every function of every fake library begins with fake_cuda_enter, which counts the call and
 * decides whether it fails: because a test or MGPU_FAKE_CUDA_FAIL asked for it, or because an
 * earlier error was fatal, as CUDA's "sticky" errors are. At the end of the process the counts are
 * written to the file MGPU_FAKE_CUDA_LOG, as lines "name: count". */
#define _GNU_SOURCE
#include "gpu.h"
#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNTERS = 4096
}; /* slots of the hash table, a power of two; at most half of them are used */

/* One lock for everything in this library; it is held for short times only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_cuda_counter *counters[COUNTERS];
static int n_counters;
static CUresult lost; /* the fatal error; CUDA_SUCCESS: none */
/* Whether MGPU_FAKE_CUDA_FAIL was read, which happens at the first call of any function. */
static bool has_read_requests;

void fake_cuda_lock(void) {
    pthread_mutex_lock(&lock);
}

void fake_cuda_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* ---- counters ---- */

/* The counter of a name, in an open-addressing hash table; made if it is new. With the lock held.
 * When the table is half full, or without memory, all further names share one counter. */
static fake_cuda_counter *find_counter(const char *name) {
    static fake_cuda_counter rest = {.name = (char *)"others"};
    uint32_t hash = 2166136261u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    fake_cuda_counter **place = &counters[hash % COUNTERS];
    while (*place && strcmp((*place)->name, name) != 0)
        place = place == &counters[COUNTERS - 1] ? counters : place + 1;
    if (*place) return *place;
    if (n_counters > COUNTERS / 2 || !(*place = calloc(1, sizeof **place))) return &rest;
    (*place)->name = strdup(name);
    n_counters++;
    return *place;
}

/* Reads MGPU_FAKE_CUDA_FAIL, "function:n:error,...", at the first call. */
static void read_requests(void) {
    const char *text = getenv("MGPU_FAKE_CUDA_FAIL");
    char name[128];
    int n, error, length;
    has_read_requests = true;
    /* One request after another, up to the first that cannot be parsed. */
    while (text && sscanf(text, "%127[^:]:%d:%d%n", name, &n, &error, &length) == 3) {
        fake_cuda_counter *c = find_counter(name);
        c->fail_in = n;
        c->error = error;
        text += length;
        if (*text++ != ',') break;
    }
}

/* Kernels and graph nodes keep their counter, so that each launch need not look up a name. */
fake_cuda_counter *fake_cuda_counter_of(const char *prefix, const char *name, const char *suffix) {
    char text[256];
    snprintf(text, sizeof text, "%s%s%s", prefix, name, suffix);
    fake_cuda_lock();
    fake_cuda_counter *c = find_counter(text);
    fake_cuda_unlock();
    return c;
}

/* Counts an event that is not a call: a kernel launch, or the replay of a node. */
void fake_cuda_add(fake_cuda_counter *c) {
    fake_cuda_lock();
    c->count++;
    fake_cuda_unlock();
}

void fake_cuda_note(const char *what) {
    fake_cuda_add(fake_cuda_counter_of("", what, ""));
}

/* A name that was never counted gives 0, and gets a counter. */
long long fake_cuda_count(const char *what) {
    fake_cuda_lock();
    const long long n = find_counter(what)->count;
    fake_cuda_unlock();
    return n;
}

/* ---- failures ---- */

/* The errors after which a real GPU's context is lost: 700 to 719, except three of that range. */
static bool is_fatal(CUresult e) {
    return e >= CUDA_ERROR_ILLEGAL_ADDRESS && e <= CUDA_ERROR_LAUNCH_FAILED &&
           e != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES && e != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
           e != CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* cuMemFree and the like; not cudnnCreate or cublasLtMatmul. */
static bool is_of_the_driver(const char *function) {
    return strncmp(function, "cu", 2) == 0 && isupper((unsigned char)function[2]);
}

/* Functions that work before cuInit and after a fatal error. */
static bool is_harmless(const char *function) {
    static const char *const names[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName",
                                        "cuGetErrorString"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], function) == 0) return true;
    return false;
}

/* The order of reasons to fail: an earlier fatal error, then a request, then a missing cuInit. A
 * request is used up by a call even if that fails for another reason. */
int fake_cuda_enter(const char *function) {
    const bool driver = is_of_the_driver(function), harmless = is_harmless(function);
    fake_cuda_lock();
    if (!has_read_requests) read_requests();
    fake_cuda_counter *c = find_counter(function);
    int error = harmless ? 0 : (int)lost;
    c->count++;
    /* fail_in counts down to the call that fails; a negative one never reaches 0 and fails each
     * call. */
    const bool due = c->fail_in < 0 || (c->fail_in > 0 && --c->fail_in == 0);
    if (due && !error) {
        error = c->error;
        if (driver && is_fatal((CUresult)error)) lost = (CUresult)error;
    }
    fake_cuda_unlock();
    return error || !driver || harmless || fake_cuda_started() ? error : CUDA_ERROR_NOT_INITIALIZED;
}

/* A new request for a function replaces the last one. */
void fake_cuda_fail(const char *function, int n, int error) {
    fake_cuda_lock();
    fake_cuda_counter *c = find_counter(function);
    c->fail_in = n;
    c->error = error;
    fake_cuda_unlock();
}

/* Takes back a fatal error. No real GPU can do this; tests need it to continue in the same
 * process. */
void fake_cuda_revive(void) {
    fake_cuda_lock();
    lost = CUDA_SUCCESS;
    fake_cuda_unlock();
}

/* The first fatal error stays, as later ones are mostly its consequences. */
CUresult fake_cuda_fatal(CUresult error) {
    fake_cuda_lock();
    if (!lost) lost = error;
    fake_cuda_unlock();
    return error;
}

CUresult fake_cuda_lost(void) {
    fake_cuda_lock();
    const CUresult error = lost;
    fake_cuda_unlock();
    return error;
}

bool fake_cuda_is_still(void) {
    static int still = -1; /* read once: memory of one process is all of one kind */
    if (still < 0) still = getenv("MGPU_FAKE_CUDA_STILL") != NULL;
    return still == 1;
}

CUresult fake_cuda_say(CUresult error, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "fake CUDA GPU: %s\n", text);
    return error;
}

/* ---- the log ---- */

/* Runs when the library is unloaded at the end of the process. */
__attribute__((destructor)) static void write_log(void) {
    const char *path = getenv("MGPU_FAKE_CUDA_LOG");
    FILE *f = path && *path ? fopen(path, "w") : NULL;
    if (!f) return;
    for (int i = 0; i < COUNTERS; i++)
        if (counters[i] && counters[i]->count)
            fprintf(f, "%s: %lld\n", counters[i]->name, counters[i]->count);
    fclose(f);
}
