/* Finding, inspecting and loading plug-ins.
 *
 * Both ways walk the same folders in the same order. To list the plug-ins of one sort, their ELF
 * symbol tables are read: loading them all would also load every library they need. */
#define _GNU_SOURCE /* dladdr */
#include "core/plugin.h"
#include "core/io.h"
#include "core/threads.h"
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4200 };

static const char PREFIX[] = "mgpu-", SUFFIX[] = ".so";

static const mg_plugins_inside *inside; /* NULL: they are files */

void mg_plugin_use_inside(const mg_plugins_inside *plugins) {
    inside = plugins;
}

/* ---- the folders ---- */

/* Calls visit(folder) for the folder of libmgpu and then for those of MGPU_PLUGINS, and returns the
 * first result that is not NULL. */
static void *visit_folders(void *(*visit)(void *context, const char *folder), void *context) {
    Dl_info self;
    void *result = NULL;
    char folder[MAX_PATH];
    if (inside) return NULL;
    char *library = NULL;
    if (dladdr((void *)(uintptr_t)&mg_plugin_symbol, &self))
        library = realpath(self.dli_fname, NULL);
    if (library) {
        *strrchr(library, '/') = 0;
        result = visit(context, library);
    }
    free(library);
    const char *more = getenv("MGPU_PLUGINS");
    while (more && *more && !result) {
        const int n = (int)strcspn(more, ":");
        snprintf(folder, sizeof folder, "%.*s", n, more);
        if (n) result = visit(context, folder);
        more += n + (more[n] == ':');
    }
    return result;
}

/* ---- loading one ---- */

/* The handle of dlopen; NULL: the folder has no such file, or it does not load (dlerror says why).
 */
static void *open_in_folder(void *name, const char *folder) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s%s%s", folder, PREFIX, (const char *)name, SUFFIX);
    if (!mg_io_exists(path)) return NULL;
    mg_signals_kept signals; /* libraries of plug-ins install handlers as soon as they are loaded */
    mg_signals_keep(&signals);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    mg_signals_restore(&signals);
    return library;
}

static void *symbol_inside(const char *name, const char *symbol, const char **problem) {
    *problem = NULL;
    void *found = inside->symbol(name, symbol, problem);
    if (!found && !*problem)
        *problem = "it is not inside of this program: pack it with --plugin NAME";
    return found;
}

void *mg_plugin_symbol(const char *name, const char *symbol, const char **problem) {
    if (inside) return symbol_inside(name, symbol, problem);
    dlerror();
    void *library = visit_folders(open_in_folder, (void *)(uintptr_t)name);
    void *found = library ? dlsym(library, symbol) : NULL;
    if (found) return found;
    *problem = dlerror();
    if (!*problem) *problem = "it is not beside the library, nor in a folder of MGPU_PLUGINS";
    return NULL;
}

/* ---- finding a program ---- */

typedef struct program {
    const char *name;
    char *path;
    size_t room;
} program;

/* Returns the program if the folder has it. */
static void *find_in_folder(void *context, const char *folder) {
    const program *p = context;
    snprintf(p->path, p->room, "%s/%s%s", folder, PREFIX, p->name);
    return mg_io_exists(p->path) && access(p->path, X_OK) == 0 ? context : NULL;
}

bool mg_plugin_program(const char *name, char *path, size_t room) {
    return visit_folders(find_in_folder, &(program){name, path, room}) != NULL;
}

/* ---- listing those that export a symbol ---- */

/* A file as bytes in memory; every access is checked against its size, as the file may be cut
 * short or no ELF file at all. */
typedef struct image {
    const char *bytes;
    size_t size;
} image;

/* `count` entries of `entry` bytes at `offset`; NULL if they are not all within the file, or not
 * aligned to 8 bytes as ELF structures need. */
static const void *image_part(const image *file, uint64_t offset, uint64_t count, size_t entry) {
    if (offset > file->size || count > (file->size - offset) / entry) return NULL;
    return entry > 1 && offset % alignof(uint64_t) ? NULL : file->bytes + offset;
}

/* Whether one of the dynamic symbols of table `s` is defined and has this name. */
static bool table_defines(const image *file, const Elf64_Shdr *tables, uint64_t n_tables,
                          const Elf64_Shdr *s, const char *name) {
    if (s->sh_link >= n_tables) return false;
    const Elf64_Shdr *strings = &tables[s->sh_link];
    const uint64_t count = s->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbols = image_part(file, s->sh_offset, count, sizeof *symbols);
    const char *text = image_part(file, strings->sh_offset, strings->sh_size, 1);
    const size_t length = strlen(name) + 1;
    for (uint64_t i = 0; symbols && text && i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && symbols[i].st_name < strings->sh_size &&
            length <= strings->sh_size - symbols[i].st_name &&
            memcmp(text + symbols[i].st_name, name, length) == 0)
            return true;
    return false;
}

/* Looks for the table of dynamic symbols among the sections of a 64-bit ELF file. */
static bool image_exports(const image *file, const char *name) {
    const Elf64_Ehdr *header = image_part(file, 0, 1, sizeof *header);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr))
        return false;
    const uint64_t n = header->e_shnum;
    const Elf64_Shdr *tables = image_part(file, header->e_shoff, n, sizeof *tables);
    for (uint64_t i = 0; tables && i < n; i++)
        if (tables[i].sh_type == SHT_DYNSYM && table_defines(file, tables, n, &tables[i], name))
            return true;
    return false;
}

/* Maps the file instead of reading it: only the pages that hold the tables are loaded. A pipe is
 * opened without waiting for its writer. */
static bool file_exports(const char *path, const char *symbol) {
    struct stat about;
    bool exports = false;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return false;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        const size_t size = (size_t)about.st_size;
        void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes != MAP_FAILED) {
            exports = image_exports(&(image){bytes, size}, symbol);
            munmap(bytes, size);
        }
    }
    close(file);
    return exports;
}

typedef struct listing { /* the arguments of mg_plugin_each */
    const char *symbol;
    void (*found)(void *context, const char *name);
    void *context;
} listing;

/* "mgpu-cpu.so" -> "cpu"; false if the file is not named as a plug-in is. */
static bool plugin_name(const char *file, char *name, size_t size) {
    const size_t n = strlen(file), around = sizeof PREFIX + sizeof SUFFIX - 2;
    if (n <= around || n - around >= size || strncmp(file, PREFIX, sizeof PREFIX - 1) != 0 ||
        strcmp(file + n - (sizeof SUFFIX - 1), SUFFIX) != 0)
        return false;
    snprintf(name, size, "%.*s", (int)(n - around), file + sizeof PREFIX - 1);
    return true;
}

/* Reports the plug-ins of one folder; a folder that cannot be read has none. */
static void *list_folder(void *context, const char *folder) {
    const listing *l = context;
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    char name[64], path[MAX_PATH + 256];
    while (entries && (entry = readdir(entries))) {
        if (!plugin_name(entry->d_name, name, sizeof name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (file_exports(path, l->symbol)) l->found(l->context, name);
    }
    if (entries) closedir(entries);
    return NULL; /* continue with the next folder */
}

void mg_plugin_each(const char *symbol, void (*found)(void *context, const char *name),
                    void *context) {
    const char *name, *unused;
    for (int i = 0; inside && (name = inside->name(i)); i++)
        if (inside->symbol(name, symbol, &unused)) found(context, name);
    visit_folders(list_folder, &(listing){symbol, found, context});
}
