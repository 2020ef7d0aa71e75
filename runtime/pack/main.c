/* The program that `mgpulua --pack` puts in front of an archive (pack/archive.h): it runs the
 * script in the archive, and leaves all arguments to it. */
#define _GNU_SOURCE
#include "core/status.h"
#include "pack/archive.h"
#include "pack/pack.h"
#include "program/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern const Elf64_Ehdr __ehdr_start; /* this program's ELF header: the linker's name */

/* ---- the archive behind the program ---- */

static int refuse(const char *why) {
    fprintf(stderr, "%s: %s\n", mg_main_name, why);
    return MG_EXIT_FILE;
}

/* The descriptor of this program's file, or -1. The second path is the one that was executed, for a
 * system without /proc. */
static int open_self(void) {
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const char *path = (const char *)getauxval(AT_EXECFN); // NOLINT: an address, by definition
    return fd < 0 && path ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

/* Where the linker's output ends: the table of sections comes last. */
static size_t program_size(void) {
    const Elf64_Ehdr *h = &__ehdr_start;
    return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
}

/* Maps the file and opens the archive in it. Returns an exit status. */
static int open_archive(const char *folder) {
    struct stat about;
    char why[600];
    const int fd = open_self();
    const size_t start = program_size();
    if (fd < 0 || fstat(fd, &about) != 0) {
        snprintf(why, sizeof why, "the program's file cannot be read: %s: allow it with chmod +r",
                 strerror(errno));
        return refuse(why);
    }
    const size_t size = (size_t)about.st_size;
    if (size == start)
        return refuse("this is the part that `mgpulua --pack script.lua` puts in front of a "
                      "script; it has none itself");
    if (size < start) return refuse("this file has been cut short: copy it again");
    const char *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) return refuse("the program's file cannot be mapped");
    if (mg_archive_open(bytes + start, size - start, mg_main_name, folder) == MG_OK)
        return EXIT_SUCCESS;
    snprintf(why, sizeof why, "this file has been damaged or cut short: copy it again (%s)",
             mg_error_message());
    return refuse(why);
}

/* ---- running the script ---- */

typedef struct run_call {
    char **argv;
    int argc, exit_status;
} run_call;

/* arg[0] is the program as it was called, and what follows is the script's. */
static void make_arg_table(lua_State *L, const run_call *call) {
    lua_createtable(L, call->argc, 1);
    for (int i = 0; i < call->argc; i++) {
        lua_pushstring(L, call->argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setglobal(L, "arg");
}

/* The name of the script in the archive. */
static const char *script_name(void) {
    mg_manifest_line line;
    for (size_t i = 0; mg_archive_manifest(i, &line); i++)
        if (strcmp(line.kind, "script") == 0) return line.name;
    return "";
}

static int run_script(lua_State *L, const run_call *call) {
    int status = mg_pack_load(L, script_name());
    luaL_checkstack(L, call->argc + 3, "too many arguments to script");
    for (int i = 1; status == 0 && i < call->argc; i++) lua_pushstring(L, call->argv[i]);
    if (status == 0) status = mg_main_call(L, call->argc - 1, 0);
    return mg_main_report(L, status);
}

/* The environment's LUA_INIT, LUA_PATH and LUA_CPATH are for scripts of its user, not for this one.
 */
static int protected_main(lua_State *L) {
    run_call *call = lua_touserdata(L, 1);
    lua_settop(L, 0);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    lua_gc(L, LUA_GCSTOP, 0);
    mg_main_open_libraries(L);
    mg_main_refuse_bytecode(L);
    mg_main_set_up_core(L, MG_PACK_ROOT);
    mg_pack_open_files(L);
    make_arg_table(L, call);
    lua_gc(L, LUA_GCRESTART, -1);
    mg_main_watch(L);
    call->exit_status = run_script(L, call);
    const int ended = mg_main_at_end(L);
    if (!call->exit_status) call->exit_status = ended;
    return 0;
}

/* Owned by the process. "" if there is no memory. */
static const char *folder_of(const char *path) {
    char *copy = strdup(path);
    return copy && strchr(path, '/') ? dirname(copy) : NULL;
}

int main(int argc, char **argv) {
    static char nameless[] = "app";
    char *called = argc > 0 && argv[0][0] ? argv[0] : nameless;
    const char *slash = strrchr(called, '/');
    mg_main_name = slash && slash[1] ? slash + 1 : called;
    if (!mg_main_has_stack()) return EXIT_FAILURE;
    int status = open_archive(folder_of(called));
    if (status) return status;
    mg_pack_use_plugins();
    const mg_command_line m = {.argv = argv, .argc = argc, .script = argc};
    status = mg_launcher_join(&m); /* under mpirun and the like */
    if (status) return status;
    run_call call = {.argv = argv, .argc = argc};
    status = mg_main_in_state(protected_main, &call);
    if (status) call.exit_status = status;
    mg_main_end(call.exit_status);
}
