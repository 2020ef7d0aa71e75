/* Stores in Lua: named tensors in one file (model files). */
#include "bind/bind.h"
#include "io/store.h"
#include <string.h>

#define BIND_STORE_FILE "mgpu.store_file"

/* ---- writing ---- */

/* What owners of this file hold. */
static void release_store(void *store) {
    mg_store_free(store);
}

/* The key at index -2, inside a loop of lua_next; raises unless it is a string without zero bytes.
 * `what` is the table's name. */
static const char *string_key(lua_State *L, const char *what) {
    if (lua_type(L, -2) != LUA_TSTRING || strlen(lua_tostring(L, -2)) != lua_objlen(L, -2))
        bind_fail(L, MG_USAGE, "store_save: the keys of the %s must be strings without zero bytes",
                  what);
    return lua_tostring(L, -2);
}

/* Adds the tensors of the table at 2 to the store. */
static void add_tensors(lua_State *L, mg_store *store) {
    lua_pushnil(L);
    while (lua_next(L, 2)) {
        const char *name = string_key(L, "tensors");
        mg_tensor *t = bind_take_tensor(L, lua_gettop(L), NULL, "store_save");
        bind_check(L, mg_store_add(store, name, t));
        lua_pop(L, 1);
    }
}

/* Adds the texts of the table at 3, if there is one. */
static void add_notes(lua_State *L, mg_store *store) {
    if (!lua_istable(L, 3)) return;
    lua_pushnil(L);
    while (lua_next(L, 3)) {
        const char *key = string_key(L, "metadata");
        const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        if (!text || strlen(text) != lua_objlen(L, -1))
            bind_fail(L, MG_USAGE, "store_save: metadata \"%s\" must be text, got a %s", key,
                      text ? "string with zero bytes" : luaL_typename(L, -1));
        bind_check(L, mg_store_add_note(store, key, text));
        lua_pop(L, 1);
    }
}

/* Evaluates all tensors of the store in one plan, with a collection if memory is short, before a
 * file is opened. */
static void evaluate_store(lua_State *L, const mg_store *store) {
    const size_t n = store->n_tensors;
    mg_tensor **list = lua_newuserdata(L, (n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = store->tensors[i].tensor;
    if (n) bind_eval(L, list, (int)n);
    lua_pop(L, 1);
}

bind_owner *bind_push_store(lua_State *L) {
    bind_owner *o = bind_new_owner(L, release_store);
    mg_store *store = o->held = mg_store_new();
    if (!store) bind_raise(L);
    add_tensors(L, store);
    add_notes(L, store);
    evaluate_store(L, store);
    return o;
}

/* store_save(path, {name = tensor, ...}, [{key = text, ...}], [format]): in the format of that
 * name, or of the path's extension.
 *
 * Values that are not tensors yet are converted, so variables can be given as they are. */
static int core_store_save(lua_State *L) {
    const char *path = bind_path(L, 1, "store_save");
    const char *format = luaL_optstring(L, 4, NULL);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 4);
    bind_poll(L);
    bind_owner *o = bind_push_store(L);
    bind_check(L, format ? mg_store_save_as(o->held, path, format) : mg_store_save(o->held, path));
    bind_release_owner(o);
    return 0;
}

/* ---- tables of a store's contents ---- */

/* Pushes {name = tensor, ...}. */
static void push_tensors(lua_State *L, const mg_store *store) {
    lua_createtable(L, 0, (int)store->n_tensors);
    for (size_t i = 0; i < store->n_tensors; i++) {
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_tensor_retain(store->tensors[i].tensor));
        bind_account(L, mg_tensor_bytes(*place));
        lua_setfield(L, -2, store->tensors[i].name);
    }
}

/* Pushes {key = text, ...}. */
static void push_notes(lua_State *L, const mg_store *store) {
    lua_createtable(L, 0, (int)store->n_notes);
    for (size_t i = 0; i < store->n_notes; i++) {
        lua_pushstring(L, store->notes[i].text);
        lua_setfield(L, -2, store->notes[i].key);
    }
}

void bind_push_store_tables(lua_State *L, mg_store *store) {
    bind_owner *o = bind_new_owner(L, release_store);
    const int place_of_owner = lua_gettop(L);
    o->held = store;
    push_tensors(L, store);
    push_notes(L, store);
    bind_release_owner(o);
    lua_remove(L, place_of_owner);
}

/* ---- reading ---- */

/* The open file at argument 1, borrowed. */
static mg_store_file *check_file(lua_State *L) {
    mg_store_file **place = luaL_checkudata(L, 1, BIND_STORE_FILE);
    if (!*place) bind_fail(L, MG_USAGE, "store: the file is closed");
    return *place;
}

/* file:close(); also __gc, and harmless when closed. */
static int file_close(lua_State *L) {
    mg_store_file **place = luaL_checkudata(L, 1, BIND_STORE_FILE);
    mg_store_close(*place);
    *place = NULL;
    return 0;
}

/* file:tensors() -> {name = {dtype = "float32", shape = {...}}, ...}; and stored = "int16", the
 * type in the file, if it is widened to dtype. */
static int file_tensors(lua_State *L) {
    const mg_store_file *f = check_file(L);
    lua_createtable(L, 0, f->n_entries);
    for (int i = 0; i < f->n_entries; i++) {
        const mg_store_entry *e = &f->entries[i];
        lua_createtable(L, 0, 2);
        lua_pushstring(L, mg_dtype_name(e->dtype));
        lua_setfield(L, -2, "dtype");
        if (e->stored) lua_pushstring(L, e->stored->name);
        if (e->stored) lua_setfield(L, -2, "stored");
        lua_createtable(L, e->shape.rank, 0);
        for (int axis = 0; axis < e->shape.rank; axis++) {
            lua_pushnumber(L, (double)e->shape.dim[axis]);
            lua_rawseti(L, -2, axis + 1);
        }
        lua_setfield(L, -2, "shape");
        lua_setfield(L, -2, e->name);
    }
    return 1;
}

/* file:notes() -> {key = text, ...}. */
static int file_notes(lua_State *L) {
    push_notes(L, check_file(L)->store);
    return 1;
}

/* file:read() -> {name = tensor, ...}, {name, ...}: the tensors, and the sorted names of those with
 * a NaN or an infinity. Once for a file. */
static int file_read(lua_State *L) {
    mg_store_file *f = check_file(L);
    bind_poll(L);
    bind_check(L, mg_store_read(f));
    push_tensors(L, f->store);
    lua_newtable(L);
    for (int i = 0, n = 0; i < f->n_entries; i++) {
        if (!f->entries[i].nonfinite) continue;
        lua_pushstring(L, f->entries[i].name);
        lua_rawseti(L, -2, ++n);
    }
    return 2;
}

/* file:format() -> "npy", "npz" or "safetensors". */
static int file_format(lua_State *L) {
    lua_pushstring(L, check_file(L)->format->name);
    return 1;
}

static const luaL_Reg methods[] = {{"format", file_format}, {"tensors", file_tensors},
                                   {"notes", file_notes},   {"read", file_read},
                                   {"close", file_close},   {NULL, NULL}};

/* Pushes a closed file, which the collector will close. */
static mg_store_file **push_file(lua_State *L) {
    mg_store_file **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    if (luaL_newmetatable(L, BIND_STORE_FILE)) {
        lua_newtable(L);
        luaL_register(L, NULL, methods);
        lua_setfield(L, -2, "__index");
        lua_pushcfunction(L, file_close);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return place;
}

/* store_open(path, [widen]) -> an open file, whose tensors are not read yet: their names, shapes
 * and dtypes can be checked first. widen: also the types that are widened on request only. Closed
 * by the collector, if not before. */
static int core_store_open(lua_State *L) {
    const char *path = bind_path(L, 1, "store_open");
    const bool widen = lua_toboolean(L, 2);
    mg_store_file **place = push_file(L);
    bind_poll(L);
    *place = mg_store_open(path, widen);
    return *place ? 1 : bind_raise(L);
}

/* onnx_open(path) -> an ONNX model as such a file; its graph is the note "model" (io/onnx.h). */
static int core_onnx_open(lua_State *L) {
    const char *path = bind_path(L, 1, "onnx_open");
    mg_store_file **place = push_file(L);
    bind_poll(L);
    *place = mg_store_open_onnx(path);
    return *place ? 1 : bind_raise(L);
}

/* store_load(path) -> {name = tensor, ...}, {key = text, ...}: opens, reads and closes. */
static int core_store_load(lua_State *L) {
    lua_settop(L, 1);
    core_store_open(L);
    lua_replace(L, 1);
    lua_settop(L, 1);
    file_read(L);
    lua_pop(L, 1);
    file_notes(L);
    file_close(L);
    return 2;
}

const luaL_Reg mg_bind_store[] = {{"store_save", core_store_save},
                                  {"store_open", core_store_open},
                                  {"store_load", core_store_load},
                                  {"onnx_open", core_onnx_open},
                                  {NULL, NULL}};
