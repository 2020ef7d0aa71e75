/* The C part of the prompt: the table `terminal` for mgpu/prompt/init.lua.
 *
 *     terminal.editor        "readline", "libedit", or nil: lines are read without an editor
 *     terminal.interactive   whether standard input is a terminal
 *     terminal.read(prompt) -> line; nil, "interrupted" after Ctrl-C; nil at the end
 *     terminal.call(fn, ...) -> true and the results; or false, the message with its traceback, and
 *                            whether the prompt must end (SIGTERM)
 *     terminal.set_history{entry, ...}, terminal.add_history(entry)
 *     terminal.locked(path, fn)   calls fn while this process holds the lock file; new files are
 *                            readable by their owner only
 *     terminal.list(folder)  -> array of the names in it, folders with a slash at the end; nil: it
 *                            cannot be read
 *     terminal.complete      set by Lua: complete(line, cursor) -> insert, listing
 */
#define _GNU_SOURCE /* DT_DIR */
#include "prompt/prompt.h"
#include "core/visit.h"
#include "program/program.h"
#include "prompt/read_line.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char TERMINAL[] = "mgpu.terminal"; /* its name in the registry */

static bool has_editor, interactive;

/* ---- reading --------------------------------------------------------------------------------- */

static int terminal_read(lua_State *L) {
    const char *prompt = luaL_checkstring(L, 1);
    char *line = NULL;
    atomic_store(&mg_visit_noted.at_prompt, true);
    const mg_read_result result = has_editor ? mg_line_editor_read(prompt, &line)
                                             : mg_read_line(interactive ? prompt : NULL, &line);
    atomic_store(&mg_visit_noted.at_prompt, false);
    if (result == MG_READ_LINE) {
        lua_pushstring(L, line);
        free(line);
        return 1;
    }
    lua_pushnil(L);
    if (result == MG_READ_END) return 1;
    if (!has_editor) fputc('\n', interactive ? stderr : stdout);
    lua_pushliteral(L, "interrupted");
    return 2;
}

/* The mg_completer: calls terminal.complete. The strings are kept alive in the registry's table
 * until the next call. After an error there is no completion. */
static void complete(void *context, const char *line, int cursor, const char **insert,
                     const char **listing) {
    lua_State *L = context;
    const int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, TERMINAL);
    lua_getfield(L, -1, "complete");
    lua_pushstring(L, line);
    lua_pushinteger(L, cursor);
    if (lua_pcall(L, 2, 2, 0) == 0) {
        lua_setfield(L, top + 1, "listing"); /* keeps the strings alive */
        lua_setfield(L, top + 1, "insert");
        lua_getfield(L, top + 1, "listing");
        lua_getfield(L, top + 1, "insert");
        *listing = lua_tostring(L, -2);
        *insert = lua_tostring(L, -1);
    }
    lua_settop(L, top);
}

/* ---- running --------------------------------------------------------------------------------- */

static int terminal_call(lua_State *L) {
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    mg_read_pause(true);
    const int status = mg_main_call(L, lua_gettop(L) - 2, LUA_MULTRET);
    mg_read_pause(false);
    if (status == 0) return lua_gettop(L);
    lua_pushboolean(L, 0);
    lua_replace(L, 1);
    const char *message = lua_tostring(L, 2);
    if (message && mg_main_exit_status(message) == 128 + SIGTERM) mg_read_caught.end = SIGTERM;
    lua_pushboolean(L, mg_read_caught.end != 0);
    if (isatty(STDOUT_FILENO)) clearerr(stdout); /* Ctrl-C interrupted a write */
    return 3;
}

/* ---- history --------------------------------------------------------------------------------- */

static int terminal_add_history(lua_State *L) {
    if (has_editor) mg_line_editor_add_history(luaL_checkstring(L, 1));
    return 0;
}

static int terminal_set_history(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    if (!has_editor) return 0;
    mg_line_editor_clear_history();
    const int n = (int)lua_objlen(L, 1);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        if (lua_isstring(L, -1)) mg_line_editor_add_history(lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return 0;
}

/* Other prompts hold the lock for milliseconds only. If one was stopped while it held the lock,
 * this one must not hang: after a second it continues without the lock. */
static void wait_for_lock(int fd) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int i = 0; i < 100 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return;
        nanosleep(&pause, NULL);
    }
}

static int terminal_locked(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    lua_settop(L, 2);
    const mode_t mask = umask(077);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) wait_for_lock(fd);
    const int status = lua_pcall(L, 0, 0, 0);
    if (fd >= 0) close(fd);
    umask(mask);
    return status ? lua_error(L) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_folder(DIR *folder, const struct dirent *entry) {
    struct stat about;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) return entry->d_type == DT_DIR;
    return fstatat(dirfd(folder), entry->d_name, &about, 0) == 0 && S_ISDIR(about.st_mode);
}

static int terminal_list(lua_State *L) {
    DIR *folder = opendir(luaL_checkstring(L, 1));
    if (!folder) return 0;
    lua_newtable(L);
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        lua_pushfstring(L, "%s%s", entry->d_name, is_folder(folder, entry) ? "/" : "");
        lua_rawseti(L, -2, ++n);
    }
    closedir(folder);
    return 1;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Loads the editor unless the terminal cannot show it, or MGPU_LINE_EDITOR says "none". */
static const char *open_editor(lua_State *L) {
    const char *wanted = getenv("MGPU_LINE_EDITOR"), *term = getenv("TERM");
    if (!interactive || !isatty(STDOUT_FILENO)) return NULL;
    if (!term || !*term || strcmp(term, "dumb") == 0) return NULL;
    if (wanted && strcmp(wanted, "none") == 0) return NULL;
    return mg_line_editor_open(wanted && *wanted ? wanted : NULL, complete, L);
}

/* Pushes the table `terminal`. */
static void push_terminal(lua_State *L) {
    static const luaL_Reg functions[] = {{"read", terminal_read},
                                         {"call", terminal_call},
                                         {"add_history", terminal_add_history},
                                         {"set_history", terminal_set_history},
                                         {"locked", terminal_locked},
                                         {"list", terminal_list},
                                         {NULL, NULL}};
    lua_newtable(L);
    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_pushcfunction(L, f->func);
        lua_setfield(L, -2, f->name);
    }
    const char *editor = open_editor(L);
    has_editor = editor != NULL;
    lua_pushstring(L, editor);
    lua_setfield(L, -2, "editor");
    lua_pushboolean(L, interactive);
    lua_setfield(L, -2, "interactive");
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, TERMINAL);
}

/* Runs a module, which returns a function of the terminal and of the value on top of the stack. */
static int run_module(lua_State *L, const char *module) {
    const int argument = lua_gettop(L);
    interactive = isatty(STDIN_FILENO);
    lua_pushcfunction(L, mg_main_traceback);
    const int base = lua_gettop(L);
    lua_getglobal(L, "require");
    lua_pushstring(L, module);
    int status = lua_pcall(L, 1, 1, base);
    if (status == 0) {
        mg_read_begin();
        push_terminal(L);
        lua_pushvalue(L, argument);
        status = lua_pcall(L, 2, 0, base);
        mg_read_end();
    }
    const int exit_status = mg_main_report(L, status);
    lua_settop(L, argument - 1);
    return mg_read_caught.end ? 128 + mg_read_caught.end : exit_status;
}

int mg_prompt_run(lua_State *L, bool init) {
    lua_pushboolean(L, init);
    return run_module(L, "mgpu.prompt");
}

int mg_prompt_attach(lua_State *L, const mg_command_line *m) {
    lua_newtable(L);
    lua_pushstring(L, m->job);
    lua_setfield(L, -2, "job");
    mg_command_line_push_chunks(L, m);
    lua_setfield(L, -2, "chunks");
    if (m->script < m->argc) {
        lua_pushstring(L, m->argv[m->script]);
        lua_setfield(L, -2, "script");
    }
    lua_pushinteger(L, m->script < m->argc ? m->argc - m->script - 1 : 0);
    lua_setfield(L, -2, "arguments");
    return run_module(L, "mgpu.attach.client");
}
