/* Opening, unpacking and reading the files of a set. */
#include "io/file_set.h"
#include "core/alloc.h"
#include "core/threads.h"
#include <pthread.h>

typedef struct set_file {
    char *path;        /* owned */
    mg_io_state state; /* when the set was opened */
    int64_t size;      /* unpacked */
    int64_t first;     /* where it begins in the unpacked file; -1: it is not compressed */
    /* Of a file that is not compressed, guarded by the lock: */
    mg_file *file; /* owned; NULL: closed */
    int readers;   /* threads that read from it now */
    uint64_t used; /* the number of the last opening or reading */
} set_file;

struct mg_file_set {
    struct mg_file_set *next, *previous; /* in the list of all sets */
    pthread_mutex_t lock;
    int n_open;
    uint64_t clock;    /* openings and readings so far */
    mg_file *unpacked; /* owned; NULL: no file is compressed */
    int64_t unpacked_size;
    int n;
    set_file files[];
};

/* ---- all sets, for forks ----
 * A forked process has only the thread that forked: a lock that another thread held would stay
 * locked, and the data it protects could be inconsistent. So all locks are taken before a fork, and
 * released after it on both sides. */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static mg_file_set *all_sets;

static void before_fork(void) {
    pthread_mutex_lock(&list_lock);
    for (mg_file_set *s = all_sets; s; s = s->next) pthread_mutex_lock(&s->lock);
}

static void after_fork(void) {
    for (mg_file_set *s = all_sets; s; s = s->next) pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&list_lock);
}

/* The threads that were reading do not exist in the child. */
static void after_fork_in_child(void) {
    for (mg_file_set *s = all_sets; s; s = s->next)
        for (int i = 0; i < s->n; i++) s->files[i].readers = 0;
    after_fork();
}

static void register_fork_handlers(void) {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void add_to_list(mg_file_set *s) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handlers);
    pthread_mutex_lock(&list_lock);
    s->next = all_sets;
    if (all_sets) all_sets->previous = s;
    all_sets = s;
    pthread_mutex_unlock(&list_lock);
}

static void remove_from_list(mg_file_set *s) {
    pthread_mutex_lock(&list_lock);
    if (s->next) s->next->previous = s->previous;
    if (s->previous)
        s->previous->next = s->next;
    else
        all_sets = s->next;
    pthread_mutex_unlock(&list_lock);
}

/* ---- descriptors ---- */

/* Closes the file that was read longest ago, if there are too many and one of them is idle. */
static void make_room(mg_file_set *s) {
    set_file *oldest = NULL;
    if (s->n_open < MG_FILE_SET_OPEN) return;
    for (int i = 0; i < s->n; i++) {
        set_file *f = &s->files[i];
        if (f->file && !f->readers && (!oldest || f->used < oldest->used)) oldest = f;
    }
    if (!oldest) return;
    mg_io_close(oldest->file);
    oldest->file = NULL;
    s->n_open--;
}

/* Opens a file again, and checks that it has not changed. */
static mg_status reopen(mg_file_set *s, set_file *f) {
    make_room(s);
    mg_file *file = mg_io_open(f->path);
    const mg_status status = file ? mg_io_check_unchanged(file, &f->state) : mg_error_code();
    if (status != MG_OK) {
        mg_io_close(file);
        return status;
    }
    f->file = file;
    s->n_open++;
    return MG_OK;
}

/* Marks a file as being read, and opens it if it is closed. */
static mg_status take(mg_file_set *s, set_file *f) {
    pthread_mutex_lock(&s->lock);
    const mg_status status = f->file ? MG_OK : reopen(s, f);
    if (status == MG_OK) f->readers++;
    f->used = ++s->clock;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void give_back(mg_file_set *s, set_file *f) {
    pthread_mutex_lock(&s->lock);
    f->readers--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening ---- */

/* gzip data begin with 1f 8b 08. */
static mg_packing tell_gzip(const unsigned char *head, size_t n) {
    return n >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 ? MG_PACKED_GZIP
                                                                        : MG_PACKED_NONE;
}

/* Opens a file for the first time, with its path set; a compressed one is unpacked. */
static mg_status open_first(mg_file_set *s, set_file *f, mg_packing packing,
                            mg_file_set_tell *tell) {
    unsigned char head[MG_FILE_SET_HEAD];
    size_t n;
    if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    make_room(s);
    f->first = -1;
    f->file = mg_io_open(f->path);
    if (!f->file) return mg_error_code();
    s->n_open++;
    f->used = ++s->clock;
    MG_TRY(mg_io_look(f->file, &f->state));
    f->size = f->state.bytes;
    MG_TRY(mg_io_read_at(f->file, head, sizeof head, 0, &n));
    if (packing == MG_PACKED_AUTO) packing = (tell ? tell : tell_gzip)(head, n);
    if (packing == MG_PACKED_NONE) return MG_OK;
    mg_io_close(f->file);
    f->file = NULL;
    s->n_open--;
    if (!s->unpacked) s->unpacked = mg_io_unnamed();
    if (!s->unpacked) return mg_error_code();
    f->first = s->unpacked_size;
    MG_TRY(mg_unpack_into(f->path, packing, s->unpacked, &f->size));
    s->unpacked_size += f->size;
    return MG_OK;
}

mg_file_set *mg_file_set_open(const char *const *paths, int n, mg_packing packing,
                              mg_file_set_tell *tell) {
    mg_file_set *s = mg_alloc_zero(sizeof *s + (size_t)n * sizeof s->files[0]);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    add_to_list(s);
    for (s->n = 0; s->n < n; s->n++) {
        set_file *f = &s->files[s->n];
        f->path = mg_strdup(paths[s->n]);
        if (f->path && open_first(s, f, packing, tell) == MG_OK) continue;
        s->n++; /* the file that was opened only partly */
        mg_file_set_close(s);
        return NULL;
    }
    return s;
}

void mg_file_set_close(mg_file_set *s) {
    if (!s) return;
    remove_from_list(s);
    for (int i = 0; i < s->n; i++) {
        mg_io_close(s->files[i].file);
        mg_free(s->files[i].path);
    }
    mg_io_close(s->unpacked);
    pthread_mutex_destroy(&s->lock);
    mg_free(s);
}

/* ---- reading ---- */

int mg_file_set_count(const mg_file_set *s) {
    return s->n;
}

const char *mg_file_set_path(const mg_file_set *s, int file) {
    return s->files[file].path;
}

int64_t mg_file_set_size(const mg_file_set *s, int file) {
    return s->files[file].size;
}

/* The file's state is checked after the bytes were read, so that a change during the read is
 * noticed. */
mg_status mg_file_set_read(mg_file_set *s, int file, void *dst, size_t n, int64_t position) {
    set_file *f = &s->files[file];
    size_t got = 0;
    if (f->first >= 0) {
        MG_TRY(mg_io_read_at(s->unpacked, dst, n, f->first + position, &got));
    } else {
        MG_TRY(take(s, f));
        mg_status status = mg_io_read_at(f->file, dst, n, position, &got);
        if (status == MG_OK) status = mg_io_check_unchanged(f->file, &f->state);
        give_back(s, f);
        MG_TRY(status);
    }
    if (got == n) return MG_OK;
    return mg_fail(MG_IO, "%s has become shorter since the data set was opened", f->path);
}
