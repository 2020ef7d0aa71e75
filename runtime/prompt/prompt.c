/* The prompt: reads Lua statements or expressions, runs them and prints their values.
 *
 * An input is first compiled as an expression (`return ` before it) and then, if that fails, as
 * statements. A trailing `;` suppresses printing. An incomplete input continues on the next line,
 * behind the prompt `>>`. `_` holds the first value of the last input. Ctrl-C discards the input
 * that is being typed, or stops the computation that is running. */
#include "program/program.h"
#include "prompt/prompt.h"

#include <errno.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A handler that does nothing: without SA_RESTART its signal makes read() fail with EINTR. */
static void wake_read(int signal_number) {
    (void)signal_number;
}

/* Reads a line and removes its newline; the caller frees it. NULL at the end of input, and on
 * Ctrl-C, which sets *interrupted. The prompt is shown on terminals only. */
static char *read_line(const char *prompt, bool *interrupted) {
    struct sigaction action = {.sa_handler = wake_read}, before;
    if (isatty(STDIN_FILENO)) fputs(prompt, stdout);
    fflush(stdout);
    sigaction(SIGINT, &action, &before);
    char *line = NULL;
    size_t room = 0;
    errno = 0;
    ssize_t n = getline(&line, &room, stdin);
    *interrupted = n < 0 && errno == EINTR;
    sigaction(SIGINT, &before, NULL);
    if (n < 0) {
        free(line);
        clearerr(stdin);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[n - 1] = '\0';
    return line;
}

/* Whether the compiler's message on top of the stack says that the input ended too early: Lua names
 * the token at which it stopped. */
static bool is_incomplete(lua_State *L, int status) {
    if (status != LUA_ERRSYNTAX) return false;
    size_t n;
    const char *message = lua_tolstring(L, -1, &n), *mark = "'<eof>'";
    return n >= strlen(mark) && strcmp(message + n - strlen(mark), mark) == 0;
}

/* Compiles the string at stack index `text` as an expression, or else as statements, and pushes the
 * function or the message. Sets *quiet if the input ends in `;`. Returns a Lua status. */
static int compile_input(lua_State *L, int text, bool *quiet) {
    size_t n;
    const char *source = lua_tolstring(L, text, &n);
    while (n > 0 && strchr(" \t\n", source[n - 1])) n--;
    *quiet = n > 0 && source[n - 1] == ';';
    if (*quiet) n--;
    lua_pushliteral(L, "return ");
    lua_pushlstring(L, source, n);
    lua_concat(L, 2);
    size_t length;
    const char *expression = lua_tolstring(L, -1, &length);
    int status = luaL_loadbuffer(L, expression, length, "=stdin");
    lua_remove(L, -2);
    if (status == 0) return 0;
    lua_pop(L, 1);
    source = lua_tolstring(L, text, &n);
    return luaL_loadbuffer(L, source, n, "=stdin");
}

/* Appends a line to the string on top of the stack. */
static void append_line(lua_State *L, const char *line) {
    lua_pushliteral(L, "\n");
    lua_pushstring(L, line);
    lua_concat(L, 3);
}

/* Reads and compiles one input of one or more lines. Returns -1 at the end of standard input, else
 * a Lua status, with the function or the message on top of the stack. The input itself may be left
 * below, at index 1. After Ctrl-C the input is empty. */
static int read_input(lua_State *L, bool *quiet) {
    bool interrupted;
    char *line = read_line("> ", &interrupted);
    if (interrupted) {
        fputc('\n', stdout);
        return luaL_loadstring(L, "");
    }
    if (!line) return -1;
    lua_pushstring(L, line[0] == '=' ? line + 1 : line);
    free(line);
    for (;;) {
        int status = compile_input(L, 1, quiet);
        if (!is_incomplete(L, status)) return status;
        line = read_line(">> ", &interrupted);
        if (interrupted) {
            fputc('\n', stdout);
            lua_settop(L, 0);
            return luaL_loadstring(L, "");
        }
        if (!line) return status; /* the input stays incomplete: that is the error */
        lua_settop(L, 1);
        append_line(L, line);
        free(line);
    }
}

/* Prints the values from stack index `first` on by Lua's `print`, and stores the first in `_`. */
static void print_values(lua_State *L, int first, bool quiet) {
    int n = lua_gettop(L) - first + 1;
    if (n <= 0) return;
    if (!lua_isnil(L, first)) {
        lua_pushvalue(L, first);
        lua_setglobal(L, "_");
    }
    if (quiet) return;
    lua_getglobal(L, "print");
    lua_insert(L, first);
    int status = mg_main_call(L, n, 0);
    if (status) mg_main_report(L, status);
}

void mg_prompt_run(lua_State *L) {
    bool quiet = false;
    for (;;) {
        lua_settop(L, 0);
        int status = read_input(L, &quiet);
        if (status < 0) break;
        if (lua_gettop(L) > 1) lua_remove(L, 1); /* the input's text */
        if (status == 0) status = mg_main_call(L, 0, LUA_MULTRET);
        if (status)
            mg_main_report(L, status);
        else
            print_values(L, 1, quiet);
    }
    lua_settop(L, 0);
    if (isatty(STDIN_FILENO)) fputc('\n', stdout);
}
