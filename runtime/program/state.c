/* The Lua state of the program: made, opened, and closed at the end. */
#include "bind/bind.h"
#include "core/limits.h"
#include "program/program.h"

#include <errno.h>
#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

const char *mg_main_name = "mgpulua";

/* An allocator on top of malloc: leak and address checkers then see Lua's own memory. */
static void *plain_allocator(void *data, void *block, size_t old_size, size_t size) {
    (void)data, (void)old_size;
    if (size > 0) return realloc(block, size);
    free(block);
    return NULL;
}

/* LuaJIT calls this if memory for compiled code cannot be made executable or writable again. */
static int panic(lua_State *L) {
    const char *message = lua_tostring(L, -1);
    fprintf(stderr, "%s: %s%s: give the process more memory, or run it with -joff\n", mg_main_name,
            message ? message : "not enough memory", mg_reason_limits(ENOMEM));
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

static lua_State *new_state(void) {
#ifdef MG_ASAN
    bool plain = true;
#else
    bool plain = getenv("MGPU_MALLOC") != NULL;
#endif
    return plain ? lua_newstate(plain_allocator, NULL) : luaL_newstate();
}

/* The tests pass with LEAST. */
bool mg_main_has_stack(void) {
    enum { LEAST = 512 << 10 }; /* bytes */
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= LEAST) return true;
    fprintf(stderr,
            "%s: the stack is limited to %ju bytes, and at least %d are needed: raise it with "
            "ulimit -s\n",
            mg_main_name, (uintmax_t)stack.rlim_cur, LEAST);
    return false;
}

void mg_main_open_libraries(lua_State *L) {
    luaL_openlibs(L);
    bind_replace_pairs(L);
    lua_getglobal(L, "os");
    lua_pushcfunction(L, mg_main_os_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
}

int mg_main_in_state(lua_CFunction body, void *argument) {
    lua_State *L = new_state();
    if (!L) {
        fprintf(stderr, "%s: not enough memory for a Lua state%s\n", mg_main_name,
                mg_reason_limits(ENOMEM));
        return EXIT_FAILURE;
    }
    lua_atpanic(L, panic);
    mg_main_begin();
    int status = lua_cpcall(L, body, argument);
    if (status) status = mg_main_report(L, status);
    mg_main_report_stop();
    luaJIT_profile_stop(L);
    lua_close(L);
    return status;
}
