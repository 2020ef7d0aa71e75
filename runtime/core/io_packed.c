/* Files inside of the program: finding them by their names. See io_packed.h. */
#define _GNU_SOURCE /* memfd_create */
#include "core/io_packed.h"
#include "core/alloc.h"
#include "core/fnv.h"
#include "core/io_file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

static const mg_packed_set *used;

void mg_packed_use(const mg_packed_set *set) {
    used = set;
}

/* ---- paths ---- */

/* Removes the last part of the n bytes of a path; false if there is none. */
static bool drop_part(const char *to, size_t *n) {
    if (*n == 0) return false;
    while (*n > 0 && to[*n - 1] != '/') --*n;
    if (*n > 0) --*n; /* its slash */
    return true;
}

/* Writes the path without ".", "..", repeated and final slashes. False if it leads out of where it
 * starts, or is too long. "" is that folder itself. */
static bool normalize(const char *path, char to[MAX_PATH]) {
    size_t n = 0;
    while (*path) {
        const size_t part = strcspn(path, "/");
        if (part == 2 && path[0] == '.' && path[1] == '.') {
            if (!drop_part(to, &n)) return false;
        } else if (part > 0 && !(part == 1 && path[0] == '.')) {
            if (n + part + 2 > MAX_PATH) return false;
            if (n > 0) to[n++] = '/';
            memcpy(to + n, path, part);
            n += part;
        }
        path += part + (path[part] == '/');
    }
    to[n] = 0;
    return true;
}

/* The name that a path stands for; false if it cannot be one of a packed file or folder. */
static bool name_of(const char *path, char name[MAX_PATH]) {
    if (!used) return false;
    const char *folder = used->folder;
    const size_t n = folder ? strlen(folder) : 0;
    if (n > 0 && strncmp(path, folder, n) == 0 && (path[n] == '/' || folder[n - 1] == '/'))
        path += n + strspn(path + n, "/");
    return *path != '/' && *path && normalize(path, name);
}

/* ---- finding ---- */

/* The first file whose name is not less than this. */
static size_t lower_bound(const char *name) {
    size_t from = 0, to = used->n;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (strcmp(used->files[middle].name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

int64_t mg_packed_find(const char *path) {
    char name[MAX_PATH];
    if (!name_of(path, name)) return -1;
    const size_t at = lower_bound(name);
    return at < used->n && strcmp(used->files[at].name, name) == 0 ? (int64_t)at : -1;
}

const mg_packed_file *mg_packed_at(int64_t file) {
    return used && file >= 0 && (size_t)file < used->n ? &used->files[file] : NULL;
}

/* What follows "folder/" in a name; NULL if the file is not below the folder. */
static const char *below(const char *name, const char *folder) {
    const size_t n = strlen(folder);
    if (n == 0) return name;
    return strncmp(name, folder, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

bool mg_packed_is_folder(const char *path) {
    char name[MAX_PATH];
    if (!name_of(path, name)) return false;
    for (size_t i = 0; i < used->n; i++)
        if (below(used->files[i].name, name)) return true;
    return false;
}

/* Names of equal folders are not always neighbours ("a-b" sorts before "a/b"), so that each is
 * looked up among those before it. */
static bool is_first_below(const char *folder, const char *rest, size_t n, size_t file) {
    for (size_t i = 0; i < file; i++) {
        const char *other = below(used->files[i].name, folder);
        if (other && strncmp(other, rest, n) == 0 && other[n] == '/') return false;
    }
    return true;
}

mg_status mg_packed_each(const char *path, bool folders, mg_io_visit *visit, void *context) {
    char folder[MAX_PATH], name[MAX_PATH];
    if (!name_of(path, folder)) return MG_OK;
    for (size_t i = 0; i < used->n; i++) {
        const char *rest = below(used->files[i].name, folder);
        if (!rest) continue;
        const size_t n = strcspn(rest, "/");
        if ((rest[n] == '/') != folders || n >= MAX_PATH) continue;
        if (folders && !is_first_below(folder, rest, n, i)) continue;
        memcpy(name, rest, n);
        name[n] = 0;
        MG_TRY(visit(context, name, folders ? 0 : used->files[i].size, 0));
    }
    return MG_OK;
}

/* ---- what the calls of core/io.h do with them ---- */

mg_file *mg_io_memory(const void *bytes, int64_t size, const char *path) {
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    f->memory = size > 0 ? bytes : "";
    f->memory_size = size;
    return f;
}

mg_file *mg_packed_open(const char *path, int64_t file) {
    const void *bytes = NULL;
    if (used->contents((size_t)file, &bytes) != MG_OK) return NULL;
    return mg_io_memory(bytes, used->files[file].size, path);
}

size_t mg_packed_read(mg_file *f, void *dst, size_t n, int64_t position) {
    if (position < 0 || position >= f->memory_size) return 0;
    const size_t left = (size_t)(f->memory_size - position);
    if (n > left) n = left;
    memcpy(dst, f->memory + position, n);
    return n;
}

/* Programs that read it by a descriptor get a copy in memory. */
int mg_packed_descriptor(mg_file *f) {
    const int fd = memfd_create("mgpu-file", MFD_CLOEXEC);
    if (fd < 0) return -1;
    for (int64_t done = 0; done < f->memory_size;) {
        const ssize_t n = write(fd, f->memory + done, (size_t)(f->memory_size - done));
        if (n <= 0) break;
        done += n;
    }
    if (lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    mg_io_set_open(f, fd);
    return fd;
}

mg_status mg_packed_refuse(const char *path) {
    if (mg_packed_find(path) < 0 && !mg_packed_is_folder(path)) return MG_OK;
    return mg_fail(MG_IO,
                   "cannot write %s: this name is taken by a file inside of the program, which "
                   "cannot be changed: use another name",
                   path);
}

mg_status mg_packed_identify(const char *path, mg_io_identity *identity) {
    char name[MAX_PATH];
    if (!name_of(path, name)) return MG_USAGE;
    *identity = (mg_io_identity){UINT64_MAX, mg_fnv(MG_FNV_START, name, strlen(name)), false};
    return MG_OK;
}
