/* The prompt: reads statements or expressions, runs them, prints what they give.
 *
 * Expressions print themselves, a trailing `;` hushes, unfinished input goes on in the next line,
 * `_` is the last value. Ctrl-C drops what is being typed or stops what is being computed. */
#include "program.h"

#include <errno.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note_interrupt(int signal_number) {
    (void)signal_number;
} /* makes read() return */

/* The next line without its newline; NULL at the end of input or, with *interrupted, on Ctrl-C. */
static char *read_line(const char *prompt, bool *interrupted) {
    struct sigaction action = {.sa_handler = note_interrupt}, before;
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

/* Whether the message on the stack says that the input is a beginning. */
static bool unfinished(lua_State *L, int status) {
    if (status != LUA_ERRSYNTAX) return false;
    size_t n;
    const char *message = lua_tolstring(L, -1, &n), *mark = "'<eof>'";
    return n >= strlen(mark) && strcmp(message + n - strlen(mark), mark) == 0;
}

/* Compiles the text at `text` as `return text`, or else as it stands. */
static int compile(lua_State *L, int text, bool *hush) {
    size_t n;
    const char *source = lua_tolstring(L, text, &n);
    while (n > 0 && strchr(" \t\n", source[n - 1])) n--;
    *hush = n > 0 && source[n - 1] == ';';
    if (*hush) n--;
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

/* Appends `line` to the text on top of the stack. */
static void append(lua_State *L, const char *line) {
    lua_pushliteral(L, "\n");
    lua_pushstring(L, line);
    lua_concat(L, 3);
}

/* Reads and compiles one input: -1 at the end, else a Lua status and the function or message. */
static int read_input(lua_State *L, bool *hush) {
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
        int status = compile(L, 1, hush);
        if (!unfinished(L, status)) return status;
        line = read_line(">> ", &interrupted);
        if (interrupted) {
            fputc('\n', stdout);
            lua_settop(L, 0);
            return luaL_loadstring(L, "");
        }
        if (!line) return status; /* the end of input: the message stands */
        lua_settop(L, 1);
        append(L, line);
        free(line);
    }
}

/* Prints the values from stack index `first` on, and keeps the first as `_`. */
static void show(lua_State *L, int first, bool hush) {
    int n = lua_gettop(L) - first + 1;
    if (n <= 0) return;
    if (!lua_isnil(L, first)) {
        lua_pushvalue(L, first);
        lua_setglobal(L, "_");
    }
    if (hush) return;
    lua_getglobal(L, "print");
    lua_insert(L, first);
    int status = mg_program_call(L, n, 0);
    if (status) mg_program_report(L, status);
}

void mg_repl(lua_State *L) {
    bool hush = false;
    for (;;) {
        lua_settop(L, 0);
        int status = read_input(L, &hush);
        if (status < 0) break;
        if (lua_gettop(L) > 1) lua_remove(L, 1); /* the text */
        if (status == 0) status = mg_program_call(L, 0, LUA_MULTRET);
        if (status)
            mg_program_report(L, status);
        else
            show(L, 1, hush);
    }
    lua_settop(L, 0);
    if (isatty(STDIN_FILENO)) fputc('\n', stdout);
}
