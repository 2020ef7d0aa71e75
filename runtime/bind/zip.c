/* Zip archives in Lua.
 *
 *     local z = core.zip_read(path)        -- z:names() z:size(name) z:read(name) z:close()
 *     z:extract(name, to)                  -- a large entry, without holding it in memory
 *     core.zip_write(path, {
 *       {name = "a.json", bytes = text},
 *       {name = "b.h5", file = other_path, deflate = true},
 *     })
 * With a third argument, the path of a program, the archive is written behind a copy of it, and can
 * be run (pack/). io/zip.h describes which archives are accepted. */
#include "bind/bind.h"
#include "io/zip.h"

#define BIND_ZIP "mgpu.zip"
enum { CHUNK = 256 << 10 };

/* ---- reading ---- */

mg_zip *bind_check_zip(lua_State *L) {
    mg_zip **place = luaL_checkudata(L, 1, BIND_ZIP);
    if (!*place) bind_fail(L, MG_USAGE, "zip: the archive is closed");
    return *place;
}

/* The entry that argument 2 names. */
static const mg_zip_entry *check_entry(lua_State *L, const mg_zip *z, const char *who) {
    const mg_zip_entry *e = mg_zip_find(z, bind_path(L, 2, who));
    if (!e) bind_fail(L, MG_DATA, "%s: the archive has no \"%s\"", who, lua_tostring(L, 2));
    return e;
}

/* zip:close(); also __gc, and harmless when closed. */
static int zip_close(lua_State *L) {
    mg_zip **place = luaL_checkudata(L, 1, BIND_ZIP);
    mg_zip_close(*place);
    *place = NULL;
    return 0;
}

/* zip:names() -> {name, ...}, sorted. */
static int zip_names(lua_State *L) {
    size_t n;
    const mg_zip_entry *e = mg_zip_entries(bind_check_zip(L), &n);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushstring(L, e[i].name);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* zip:size(name) -> bytes, or nil if there is no such entry. */
static int zip_size(lua_State *L) {
    const mg_zip_entry *e = mg_zip_find(bind_check_zip(L), bind_path(L, 2, "zip:size"));
    if (!e) return 0;
    lua_pushnumber(L, (double)e->size);
    return 1;
}

/* zip:read(name) -> the contents as a string. */
static int zip_read(lua_State *L) {
    mg_zip *z = bind_check_zip(L);
    const mg_zip_entry *e = check_entry(L, z, "zip:read");
    size_t got;
    bind_poll(L);
    void *bytes = lua_newuserdata(L, (size_t)e->size);
    bind_check(L, mg_zip_start(z, e));
    bind_check(L, mg_zip_read(z, bytes, (size_t)e->size, &got));
    lua_pushlstring(L, bytes, got);
    return 1;
}

/* Copies the entry to a new file. */
static mg_status extract(mg_zip *z, const mg_zip_entry *e, const char *path, void *chunk) {
    mg_status status = mg_zip_start(z, e);
    mg_file *f = status == MG_OK ? mg_io_create(path) : NULL;
    if (!f) return mg_error_code();
    for (size_t got = 1; status == MG_OK && got;) {
        status = mg_zip_read(z, chunk, CHUNK, &got);
        if (status == MG_OK) status = mg_io_write(f, chunk, got);
    }
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

/* zip:extract(name, path): the file appears whole or not at all. */
static int zip_extract(lua_State *L) {
    mg_zip *z = bind_check_zip(L);
    const mg_zip_entry *e = check_entry(L, z, "zip:extract");
    const char *path = bind_path(L, 3, "zip:extract");
    bind_poll(L);
    bind_check(L, extract(z, e, path, lua_newuserdata(L, CHUNK)));
    return 0;
}

static const luaL_Reg methods[] = {{"names", zip_names}, {"size", zip_size},
                                   {"read", zip_read},   {"extract", zip_extract},
                                   {"close", zip_close}, {NULL, NULL}};

/* zip_read(path) -> an open archive, closed by the collector if not before. */
static int core_zip_read(lua_State *L) {
    const char *path = bind_path(L, 1, "zip_read");
    mg_zip **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    if (luaL_newmetatable(L, BIND_ZIP)) {
        lua_newtable(L);
        luaL_register(L, NULL, methods);
        lua_setfield(L, -2, "__index");
        lua_pushcfunction(L, zip_close);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    bind_poll(L);
    *place = mg_zip_open(path);
    if (!*place) return bind_raise(L);
    return 1;
}

/* ---- writing ---- */

/* What owners of this file hold. */
static void release_writer(void *writer) {
    mg_zip_abandon(writer);
}

static void release_file(void *file) {
    mg_io_close(file);
}

/* The writer of an archive behind the program at `program`, or without one if that is NULL. */
static mg_zip_writer *create(lua_State *L, const char *path, const char *program) {
    if (!program) return mg_zip_create(path);
    int64_t size;
    bind_owner *o = bind_new_owner(L, release_file);
    mg_file *f = o->held = mg_io_open(program);
    if (!f) bind_raise(L);
    bind_check(L, mg_io_size(f, &size));
    mg_zip_writer *w = mg_zip_create_behind(path, f, size);
    bind_release_owner(o);
    return w;
}

/* Copies the file at `path` into a new entry. */
static void add_file(lua_State *L, mg_zip_writer *w, const char *name, bool deflate) {
    const char *path = bind_path(L, -1, "zip_write: file");
    bind_owner *o = bind_new_owner(L, release_file);
    mg_file *f = o->held = mg_io_open(path);
    void *chunk = lua_newuserdata(L, CHUNK);
    int64_t size;
    if (!f) bind_raise(L);
    bind_check(L, mg_io_size(f, &size));
    bind_check(L, mg_zip_add(w, name, size, deflate));
    while (size) {
        size_t wanted = size < CHUNK ? (size_t)size : CHUNK, got;
        bind_check(L, mg_io_read(f, chunk, wanted, &got));
        if (got < wanted) bind_fail(L, MG_IO, "%s became shorter while it was read", path);
        bind_check(L, mg_zip_write(w, chunk, got));
        size -= (int64_t)got;
    }
    bind_release_owner(o);
}

/* Adds the entry that the table on top of the stack describes. */
static void add_entry(lua_State *L, mg_zip_writer *w) {
    static const char *const known[] = {"name", "bytes", "file", "deflate"};
    const int entry = lua_gettop(L);
    bind_check_options(L, entry, "zip_write", known, 4);
    lua_getfield(L, entry, "name");
    const char *name = bind_path(L, -1, "zip_write: name");
    lua_getfield(L, entry, "deflate");
    const bool deflate = lua_toboolean(L, -1);
    lua_getfield(L, entry, "bytes");
    if (lua_type(L, -1) == LUA_TSTRING) {
        size_t n;
        const char *bytes = lua_tolstring(L, -1, &n);
        bind_check(L, mg_zip_add(w, name, (int64_t)n, deflate));
        bind_check(L, mg_zip_write(w, bytes, n));
    } else {
        lua_getfield(L, entry, "file");
        add_file(L, w, name, deflate);
    }
    lua_settop(L, entry);
}

/* zip_write(path, {entry, ...} [, program]): see the top. The file at `path` is replaced at the
 * end. */
static int core_zip_write(lua_State *L) {
    const char *path = bind_path(L, 1, "zip_write");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 3);
    const char *program = lua_isnil(L, 3) ? NULL : bind_path(L, 3, "zip_write: program");
    bind_poll(L);
    bind_owner *o = bind_new_owner(L, release_writer);
    mg_zip_writer *w = o->held = create(L, path, program);
    if (!w) return bind_raise(L);
    for (int i = 1; i <= (int)lua_objlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        add_entry(L, w);
        lua_pop(L, 1);
    }
    o->held = NULL; /* mg_zip_commit frees the writer */
    bind_check(L, mg_zip_commit(w));
    return 0;
}

const luaL_Reg mg_bind_zip[] = {
    {"zip_read", core_zip_read}, {"zip_write", core_zip_write}, {NULL, NULL}};
