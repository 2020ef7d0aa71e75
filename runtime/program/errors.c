/* Reporting an error: its traceback, the program's message, and the exit status. */
#include "core/limits.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/threads.h"
#include "program/program.h"
#include "world/world.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit statuses besides 0, 1 and MG_EXIT_FILE, by the code of the library's error. */
enum { EXIT_INTERNAL = 70, EXIT_SAVED = 75, EXIT_PEER = 76, EXIT_DEVICE = 77 };

/* Lua calls no metamethod when `<` compares a tensor with a number, so its message does not name
 * the remedy: adds it to the message at index 1. */
static void explain_comparison(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    if (!strstr(message, "attempt to compare ") || !strstr(message, "userdata")) return;
    lua_pushliteral(L,
                    ": tensors are not ordered with < or <=: use :lt, :le, :gt or :ge, element by "
                    "element");
    lua_concat(L, 2);
}

/* Whether the message is the library's last error. */
static bool is_last_error(const char *message) {
    const char *last = mg_error_message();
    return last[0] && strstr(message, last);
}

/* Whether the message is that of a training run that a signal ended after a save. */
static bool is_stop_after_save(const char *message) {
    return mg_stop_saved() && mg_error_code() == MG_INTERRUPTED && is_last_error(message);
}

/* As in luajit, messages that are strings or have __tostring get a traceback, and other error
 * values are not changed. A stop after a save gets none, because it is no error of the script. */
int mg_main_traceback(lua_State *L) {
    if (!lua_isstring(L, 1)) {
        if (lua_isnoneornil(L, 1) || !luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1))
            return 1;
        lua_remove(L, 1);
    }
    lua_settop(L, 1);
    if (is_stop_after_save(lua_tostring(L, 1))) return 1;
    explain_comparison(L);
    mg_main_push_traceback(L, 1);
    lua_concat(L, 2);
    return 1;
}

int mg_main_exit_status(const char *message) {
    const char *over = mg_world_over();
    if (over && strstr(message, over)) return EXIT_PEER; /* whatever the script did after it */
    if (!is_last_error(message)) return EXIT_FAILURE;
    switch (mg_error_code()) {
    case MG_IO: return MG_EXIT_FILE;
    case MG_COMM: return EXIT_PEER;
    case MG_DEVICE: return EXIT_DEVICE;
    case MG_INTERNAL: return EXIT_INTERNAL;
    case MG_INTERRUPTED:
        if (mg_stop_saved()) return EXIT_SAVED;
        return mg_interrupt_signal() ? 128 + mg_interrupt_signal() : EXIT_FAILURE;
    default: return EXIT_FAILURE;
    }
}

/* Prints the message on standard error, with its control characters visible. In one write, since
 * other ranks may print at the same time: fprintf makes several with some C libraries. */
static void complain(const char *message, const char *more) {
    const size_t n = strlen(message), who = strlen(mg_main_name) + 2,
                 room = MG_PRINTABLE_MOST * n + 1;
    char *line = malloc(who + room + strlen(more) + 2);
    if (!line) {
        fprintf(stderr, "%s: not enough memory\n", mg_main_name);
        return;
    }
    strcat(strcpy(line, mg_main_name), ": ");
    mg_printable(message, n, false, line + who, room);
    strcat(strcat(line, more), "\n");
    fputs(line, stderr);
    free(line);
}

/* The others are told the first line of an error that is no news from them and no agreed stop. */
static void tell_others(const char *message, int exit_status) {
    char line[MG_ERROR_BYTES];
    if (exit_status == EXIT_PEER || exit_status == EXIT_SAVED) return;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(message, "\n"), message);
    mg_world_fail(line);
}

int mg_main_report(lua_State *L, int status) {
    if (status == 0) return EXIT_SUCCESS;
    const char *message = lua_tostring(L, -1);
    if (!message && !lua_isnil(L, -1)) message = "(error object is not a string)";
    fflush(stdout);
    if (message) complain(message, status == LUA_ERRMEM ? mg_reason_limits(ENOMEM) : "");
    fflush(stderr);
    int exit_status = message ? mg_main_exit_status(message) : EXIT_FAILURE;
    if (message) tell_others(message, exit_status);
    if (status == LUA_ERRFILE) exit_status = MG_EXIT_FILE; /* the script cannot be read */
    lua_pop(L, 1);
    return exit_status;
}
