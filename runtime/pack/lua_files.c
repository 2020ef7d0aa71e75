/* The functions of Lua that read files, for files inside of the program. Each looks there first and
 * calls the function that it replaces, its upvalue 1, for all other files. */
#define _GNU_SOURCE /* fopencookie */
#include "core/io_packed.h"
#include "pack/archive.h"
#include "pack/pack.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams over bytes in memory ---- */

typedef struct reader {
    const char *bytes;
    off64_t size, at;
} reader;

static ssize_t read_some(void *cookie, char *to, size_t n) {
    reader *r = cookie;
    if (r->at >= r->size) return 0;
    if (n > (size_t)(r->size - r->at)) n = (size_t)(r->size - r->at);
    memcpy(to, r->bytes + r->at, n);
    r->at += (off64_t)n;
    return (ssize_t)n;
}

static int seek(void *cookie, off64_t *to, int whence) {
    reader *r = cookie;
    const off64_t from = whence == SEEK_CUR ? r->at : whence == SEEK_END ? r->size : 0;
    if (from + *to < 0) {
        errno = EINVAL;
        return -1;
    }
    *to = r->at = from + *to;
    return 0;
}

static int end(void *cookie) {
    free(cookie);
    return 0;
}

/* NULL with errno. */
static FILE *open_stream(const void *bytes, size_t size) {
    static const cookie_io_functions_t functions = {.read = read_some, .seek = seek, .close = end};
    reader *r = malloc(sizeof *r);
    if (!r) return NULL;
    *r = (reader){.bytes = bytes, .size = (off64_t)size};
    FILE *stream = fopencookie(r, "r", functions);
    if (!stream) free(r);
    return stream;
}

/* ---- io ---- */

/* Whether argument 1 is the path of a file inside of the program. */
static bool is_packed(lua_State *L) {
    return lua_type(L, 1) == LUA_TSTRING && mg_packed_find(lua_tostring(L, 1)) >= 0;
}

/* Pushes nil, a message and errno's number, as functions of io do. */
static int push_failure(lua_State *L, const char *path, int number, const char *reason) {
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", path, reason);
    lua_pushinteger(L, number);
    return 3;
}

/* Calls the function with all arguments and returns its results. */
static int call_original(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* Pushes a file handle, or nil and why not, for the packed file at `path`; `open` is the index of
 * the original io.open. Only that can make a handle: it opens a folder, which is there always, and
 * the handle then gets another stream. */
static int push_handle(lua_State *L, const char *path, int open) {
    size_t size;
    const void *bytes = mg_archive_file(path, &size);
    if (!bytes) return push_failure(L, path, EIO, mg_error_message());
    lua_pushvalue(L, open);
    lua_pushliteral(L, "/");
    lua_call(L, 1, 1);
    FILE **handle = lua_touserdata(L, -1);
    FILE *stream = handle ? open_stream(bytes, size) : NULL;
    if (!stream) return push_failure(L, path, errno, strerror(errno));
    fclose(*handle);
    *handle = stream;
    return 1;
}

/* io.open(path, mode) */
static int packed_open(lua_State *L) {
    const char *mode = luaL_optstring(L, 2, "r");
    if (!is_packed(L)) {
        if (strpbrk(mode, "wa+") && lua_isstring(L, 1) && mg_packed_is_folder(lua_tostring(L, 1)))
            return push_failure(L, lua_tostring(L, 1), EISDIR, strerror(EISDIR));
        return call_original(L);
    }
    if (strpbrk(mode, "wa+"))
        return push_failure(L, lua_tostring(L, 1), EROFS,
                            "this file is inside of the program and cannot be written");
    return push_handle(L, lua_tostring(L, 1), lua_upvalueindex(1));
}

/* Replaces argument 1, a packed path, by a handle; upvalue 2: the original io.open. */
static void path_to_handle(lua_State *L) {
    const int n = push_handle(L, lua_tostring(L, 1), lua_upvalueindex(2));
    if (n != 1) luaL_error(L, "%s", lua_tostring(L, -2));
    lua_replace(L, 1);
}

/* io.lines(path, ...): the iterator keeps the handle, which the collector closes. */
static int packed_lines(lua_State *L) {
    if (!is_packed(L)) return call_original(L);
    path_to_handle(L);
    lua_getfield(L, 1, "lines");
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* io.input(path) */
static int packed_input(lua_State *L) {
    if (is_packed(L)) path_to_handle(L);
    return call_original(L);
}

/* ---- loading ---- */

int mg_pack_load(lua_State *L, const char *path) {
    size_t size;
    const void *text = mg_archive_file(path, &size);
    if (!text) {
        lua_pushfstring(L, "cannot read %s: %s", path, mg_error_message());
        return LUA_ERRFILE;
    }
    lua_pushfstring(L, "@%s", path);
    const int status = luaL_loadbufferx(L, text, size, lua_tostring(L, -1), "t");
    lua_remove(L, -2);
    if (strncmp(path, MG_PACK_ROOT, sizeof MG_PACK_ROOT - 1) == 0) mg_archive_forget(path);
    return status;
}

/* loadfile(path, mode, environment) */
static int packed_loadfile(lua_State *L) {
    if (!is_packed(L)) return call_original(L);
    lua_settop(L, 3);
    if (mg_pack_load(L, lua_tostring(L, 1)) != 0) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (!lua_isnil(L, 3)) {
        lua_pushvalue(L, 3);
        lua_setfenv(L, -2);
    }
    return 1;
}

/* dofile(path) */
static int packed_dofile(lua_State *L) {
    if (!is_packed(L)) return call_original(L);
    lua_settop(L, 1);
    if (mg_pack_load(L, lua_tostring(L, 1)) != 0) return lua_error(L);
    lua_call(L, 0, LUA_MULTRET);
    return lua_gettop(L) - 1;
}

/* ---- require ---- */

/* Writes the path of a module inside of the program to `path`: of the script's, or of mgpu. */
static bool find_module(const char *module, char *path, size_t room) {
    static const char *const places[] = {MG_PACK_ROOT "/lua/%s.lua",
                                         MG_PACK_ROOT "/lua/%s/init.lua"};
    mg_manifest_line line;
    char name[256];
    for (size_t i = 0; mg_archive_manifest(i, &line); i++) {
        if (strcmp(line.kind, "module") != 0 || strcmp(line.name, module) != 0) continue;
        return (size_t)snprintf(path, room, "%s", line.file) < room;
    }
    if (strlen(module) >= sizeof name) return false;
    for (size_t i = 0; i <= strlen(module); i++) name[i] = module[i] == '.' ? '/' : module[i];
    for (int i = 0; i < 2; i++) {
        snprintf(path, room, i ? places[1] : places[0], name);
        if (mg_packed_find(path) >= 0) return true;
    }
    return false;
}

/* The searcher of require. */
static int packed_searcher(lua_State *L) {
    char path[4096];
    const char *module = luaL_checkstring(L, 1);
    if (!find_module(module, path, sizeof path)) {
        lua_pushfstring(L, "\n\tno module '%s' inside of the program", module);
        return 1;
    }
    if (mg_pack_load(L, path) == 0) return 1;
    return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", module, path,
                      lua_tostring(L, -1));
}

/* Puts the searcher behind package.preload and before the one for files. */
static void insert_searcher(lua_State *L) {
    enum { PLACE = 2 };
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaders");
    for (int i = (int)lua_objlen(L, -1); i >= PLACE; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, packed_searcher);
    lua_rawseti(L, -2, PLACE);
    lua_pop(L, 2);
}

/* Replaces the field of the table on top of the stack, whose original io.open is at `open`. */
static void replace(lua_State *L, const char *name, lua_CFunction function, int open) {
    lua_getfield(L, -1, name);
    lua_pushvalue(L, open);
    lua_pushcclosure(L, function, 2);
    lua_setfield(L, -2, name);
}

void mg_pack_open_files(lua_State *L) {
    lua_getglobal(L, "io");
    lua_getfield(L, -1, "open");
    const int open = lua_gettop(L);
    lua_pushvalue(L, -2);
    replace(L, "lines", packed_lines, open);
    replace(L, "input", packed_input, open);
    replace(L, "open", packed_open, open);
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    replace(L, "loadfile", packed_loadfile, open);
    replace(L, "dofile", packed_dofile, open);
    lua_settop(L, open - 2);
    insert_searcher(L);
}
