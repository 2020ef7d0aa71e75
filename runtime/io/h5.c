/* Reading and writing HDF5 files with the program mgpu-h5.
 *
 * Both directions use files in memory: the program gets one (or the user's file, open for reading)
 * as standard input and another as standard output. So there is no pipe that could block, and the
 * size of the output can be checked. */
#define _GNU_SOURCE /* memfd_create */
#include "io/h5.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/limits.h"
#include "core/plugin.h"
#include "core/threads.h"
#include "io/h5_protocol.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PATH = 4200, CHUNK = 1 << 20 };

/* ---- files in memory ---- */

/* An empty file in memory; -1: MG_OOM is stored. */
static int memory_file(void) {
    const int fd = memfd_create("mgpu-h5", MFD_CLOEXEC);
    if (fd < 0) mg_fail(MG_OOM, "cannot make a file in memory: %s", mg_reason(errno));
    return fd;
}

/* The bytes of a file in memory; an empty one has none. */
typedef struct mapping {
    unsigned char *bytes;
    size_t n;
} mapping;

static mg_status map_file(int fd, mapping *m) {
    struct stat s;
    *m = (mapping){0};
    if (fstat(fd, &s) != 0 || s.st_size == 0) return MG_OK;
    m->bytes = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (m->bytes == MAP_FAILED)
        return mg_fail(MG_OOM, "cannot map %lld bytes: %s", (long long)s.st_size, mg_reason(errno));
    m->n = (size_t)s.st_size;
    return MG_OK;
}

static void unmap_file(mapping *m) {
    if (m->n) munmap(m->bytes, m->n);
}

/* ---- the program ---- */

/* Starts mgpu-h5 with `in` and `out` as its standard input and output, no signal blocked or
 * ignored, and no environment except the loader's path. */
static int spawn(pid_t *pid, char *program, const char *mode, int in, int out) {
    char path[MAX_PATH], *environment[2] = {NULL, NULL};
    const char *libraries = getenv("LD_LIBRARY_PATH");
    if (libraries) {
        snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", libraries);
        environment[0] = path;
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    char *arguments[] = {program, (char *)(uintptr_t)mode, NULL};
    const int error = posix_spawn(pid, program, &files, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/* Whether the program's limit is not the one for damaged files (sandbox_enter), but the one that
 * was set for this process, and is lower. */
static bool is_limited(__rlimit_resource_t limit, rlim_t reached) {
    struct rlimit r;
    return getrlimit(limit, &r) == 0 && r.rlim_cur != RLIM_INFINITY && r.rlim_cur <= reached;
}

/* The program was ended by a limit on its time or on the size of its output. */
static mg_status fail_limit(int signal_number, int in, int out, const char *who) {
    struct stat s = {0};
    if (signal_number == SIGXCPU) {
        if (fstat(in, &s) == 0 && is_limited(RLIMIT_CPU, mg_h5_seconds((uint64_t)s.st_size)))
            return mg_fail(
                MG_IO, "%s: the limit on CPU time (ulimit -t) is too low to read the file", who);
        return mg_fail(MG_DATA, "%s: the file takes too long to read: it is damaged", who);
    }
    if (fstat(out, &s) == 0 && is_limited(RLIMIT_FSIZE, (rlim_t)s.st_size))
        return mg_fail(MG_IO, "%s: no room for its contents in a file in memory: %s", who,
                       mg_reason(EFBIG));
    return mg_fail(MG_DATA, "%s: the file takes too much memory to read: it is damaged", who);
}

/* Runs mgpu-h5 to its end. *finished: whether it ended by itself; its output is in `out`. */
static mg_status run_program(const char *mode, int in, int out, const char *who, bool *finished) {
    static const char MISSING[] = "%s: HDF5 files need the program mgpu-h5, which %s: install the "
                                  "package libhdf5-dev and build again";
    char program[MAX_PATH];
    pid_t pid;
    int result = 0;
    if (!mg_plugin_program("h5", program, sizeof program))
        return mg_fail(MG_UNSUPPORTED, MISSING, who, "is not installed");
    const int error = spawn(&pid, program, mode, in, out);
    if (error) return mg_fail(MG_IO, "%s: cannot start %s: %s", who, program, mg_reason(error));
    /* if the host program ignores SIGCHLD there is no exit status: then only the records tell the
     * result */
    while (waitpid(pid, &result, 0) < 0)
        if (errno != EINTR) break;
    if (mg_interrupt_pending() && mg_interrupt_take())
        return mg_fail(MG_INTERRUPTED, "interrupted");
    if (WIFEXITED(result) && WEXITSTATUS(result) == 127)
        return mg_fail(MG_UNSUPPORTED, MISSING, who, "does not find its libraries");
    if (WIFSIGNALED(result) && (WTERMSIG(result) == SIGXCPU || WTERMSIG(result) == SIGXFSZ))
        return fail_limit(WTERMSIG(result), in, out, who);
    *finished = WIFEXITED(result) && WEXITSTATUS(result) == 0;
    return MG_OK;
}

/* ---- reading ---- */

/* The tree of the HDF5 file at the descriptor. */
static mg_h5_tree *load(int in, const char *who) {
    mapping records = {0};
    mg_h5_tree *tree = NULL;
    bool finished;
    const int out = memory_file();
    if (out >= 0 && run_program("read", in, out, who, &finished) == MG_OK &&
        map_file(out, &records) == MG_OK)
        tree = mg_h5_parse_records(records.bytes, records.n, who);
    unmap_file(&records);
    if (out >= 0) close(out);
    return tree;
}

mg_h5_tree *mg_h5_load(const char *path) {
    int64_t size;
    mg_h5_tree *tree = NULL;
    mg_file *f = mg_io_open(path);
    if (f && mg_io_size(f, &size) == MG_OK) tree = load(mg_io_descriptor(f), path);
    mg_io_close(f);
    return tree;
}

/* Copies the entry to a file in memory. */
static mg_status extract(mg_zip *zip, const mg_zip_entry *entry, int fd, const char *who) {
    size_t got = 1;
    void *chunk = mg_alloc(CHUNK);
    mg_status status = chunk ? mg_zip_start(zip, entry) : MG_OOM;
    while (status == MG_OK && got) {
        status = mg_zip_read(zip, chunk, CHUNK, &got);
        if (status == MG_OK && (status = mg_h5_put(fd, chunk, got)) != MG_OK) mg_error_prefix(who);
    }
    mg_free(chunk);
    return status;
}

mg_h5_tree *mg_h5_load_zipped(mg_zip *zip, const mg_zip_entry *entry, const char *who) {
    const int in = memory_file();
    if (in < 0) return NULL;
    mg_h5_tree *tree = extract(zip, entry, in, who) == MG_OK ? load(in, who) : NULL;
    close(in);
    return tree;
}

/* ---- writing ---- */

/* Stores the sentence that mgpu-h5 left in place of the file, as MG_INTERNAL. */
static mg_status explain_failure(int out, const char *who) {
    mapping m;
    MG_TRY(map_file(out, &m));
    mg_h5_free(mg_h5_parse_records(m.bytes, m.n, who));
    unmap_file(&m);
    return mg_fail(MG_INTERNAL, "%s", mg_error_message());
}

int mg_h5_make(const mg_h5_tree *tree, const char *who) {
    bool finished = false;
    const int in = memory_file(), out = in < 0 ? -1 : memory_file();
    mg_status status = out < 0 ? MG_OOM : mg_h5_write_records(tree, in);
    if (out >= 0 && status != MG_OK) mg_error_prefix(who);
    if (status == MG_OK) status = run_program("write", in, out, who, &finished);
    if (status == MG_OK && !finished) status = explain_failure(out, who);
    if (in >= 0) close(in);
    if (status == MG_OK) return out;
    if (out >= 0) close(out);
    return -1;
}

mg_status mg_h5_save(const mg_h5_tree *tree, const char *path) {
    mapping made = {0};
    const int fd = mg_h5_make(tree, path);
    if (fd < 0) return mg_error_code();
    mg_file *f = map_file(fd, &made) == MG_OK ? mg_io_create(path) : NULL;
    mg_status status = f ? MG_OK : mg_error_code();
    for (size_t at = 0; status == MG_OK && at < made.n; at += CHUNK)
        status = mg_io_write(f, made.bytes + at, made.n - at < CHUNK ? made.n - at : CHUNK);
    if (status == MG_OK)
        status = mg_io_commit(f);
    else
        mg_io_close(f);
    unmap_file(&made);
    close(fd);
    return status;
}
