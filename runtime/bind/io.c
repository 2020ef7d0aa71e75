/* Files in Lua: JSON, stores of tensors (model files), folders.
 *
 * C objects are held by `owner` userdata while Lua code or allocation may raise, so that an error
 * frees them. */
#include "bind/bind.h"
#include "core/io.h"
#include "core/alloc.h"
#include "io/json.h"
#include "io/store.h"
#include <math.h>
#include <string.h>

/* ---- owners ---- */

/* The userdata: frees what it holds when it is collected. */
typedef struct owner {
    void *held; /* owned; NULL: nothing */
    void (*release)(void *held);
} owner;

/* The two kinds of objects held. */
static void release_json(void *value) {
    json_decref(value);
}

static void release_store(void *store) {
    mg_store_free(store);
}

/* Frees what is held without waiting for the collector. */
static void release_owner(owner *o) {
    void *held = o->held;
    o->held = NULL;
    if (held) o->release(held);
}

static int owner_gc(lua_State *L) {
    release_owner(lua_touserdata(L, 1));
    return 0;
}

/* Pushes an owner of nothing; release frees what is put into it. */
static owner *new_owner(lua_State *L, void (*release)(void *)) {
    owner *o = lua_newuserdata(L, sizeof *o);
    *o = (owner){NULL, release};
    if (luaL_newmetatable(L, "mgpu.owner")) {
        lua_pushcfunction(L, owner_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return o;
}

/* ---- Lua values to JSON ---- */

/* core.null and core.empty_array are light userdata: NULL, and this address. */
static char empty_array_key;
#define EMPTY_ARRAY ((void *)&empty_array_key)

/* jansson returns NULL without a message of the library. */
static int fail_no_memory(lua_State *L) {
    return bind_fail(L, MG_OOM, "json_encode: out of memory");
}

/* The conversions below return an owned value, NULL if memory is short, and raise for what JSON
 * cannot hold. */
static json_t *string_to_json(lua_State *L, int index) {
    size_t n;
    const char *text = lua_tolstring(L, index, &n);
    json_t *value = json_stringn(text, n);
    if (!value) bind_fail(L, MG_USAGE, "json_encode: the string \"%.40s\" is not UTF-8 text", text);
    return value;
}

/* Whole numbers up to 2^53 are written without a decimal point. */
static json_t *number_to_json(lua_State *L, double v) {
    if (!isfinite(v)) bind_fail(L, MG_USAGE, "json_encode: %g cannot be written as JSON", v);
    return v == floor(v) && fabs(v) <= 0x1p53 ? json_integer((json_int_t)v) : json_real(v);
}

/* A table is written as an array if it has the keys 1..n and no others; an empty one is an object.
 */
static bool is_array(lua_State *L, int index) {
    const size_t n = lua_objlen(L, index);
    size_t keys = 0;
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        const double key = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        if (key < 1 || key > (double)n || key != floor(key)) {
            lua_pop(L, 1);
            return false;
        }
        keys++;
    }
    return keys == n && n > 0;
}

/* The value on top of the stack; a table gives an empty array or object.
 *
 * It is filled once its parent owns it. */
static json_t *value_to_json(lua_State *L) {
    const int top = lua_gettop(L);
    switch (lua_type(L, top)) {
    case LUA_TBOOLEAN: return json_boolean(lua_toboolean(L, top));
    case LUA_TNUMBER: return number_to_json(L, lua_tonumber(L, top));
    case LUA_TSTRING: return string_to_json(L, top);
    case LUA_TNIL: return json_null();
    case LUA_TTABLE: return is_array(L, top) ? json_array() : json_object();
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, top) == NULL) return json_null();
        if (lua_touserdata(L, top) == EMPTY_ARRAY) return json_array();
        break;
    default: break;
    }
    bind_fail(L, MG_USAGE, "json_encode: a %s cannot be written as JSON", luaL_typename(L, top));
    return NULL;
}

/* Fills `into`, which its parent owns, from the table on top of the stack.
 *
 * A child is entered while it is still empty and filled after that, so that an error at any depth
 * leaves one tree, which the root's owner frees. */
static void fill_json_from_table(lua_State *L, json_t *into, int depth) {
    const int table = lua_gettop(L);
    if (depth >= MG_JSON_MAX_DEPTH)
        bind_fail(L, MG_USAGE, "json_encode: tables nest deeper than %d: does one contain itself?",
                  MG_JSON_MAX_DEPTH);
    luaL_checkstack(L, 6, "json_encode");
    /* an object: is_array has looked at every key of an array */
    lua_pushnil(L);
    while (!json_is_array(into) && lua_next(L, table)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            bind_fail(L, MG_USAGE, "json_encode: a table mixes positions with names, or has holes");
        if (strlen(lua_tostring(L, -2)) != lua_objlen(L, -2))
            bind_fail(L, MG_USAGE, "json_encode: a key contains a zero byte");
        json_t *value = value_to_json(L);
        if (!value) fail_no_memory(L);
        if (json_object_set_new(into, lua_tostring(L, -2), value) != 0)
            bind_fail(L, MG_USAGE, "json_encode: the key \"%.40s\" is not UTF-8 text",
                      lua_tostring(L, -2));
        if (lua_istable(L, -1)) fill_json_from_table(L, value, depth + 1);
        lua_pop(L, 1);
    }
    const int n = json_is_array(into) ? (int)lua_objlen(L, table) : 0;
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, table, i);
        json_t *value = value_to_json(L);
        if (json_array_append_new(into, value) != 0) fail_no_memory(L);
        if (lua_istable(L, -1)) fill_json_from_table(L, value, depth + 1);
        lua_pop(L, 1);
    }
    lua_settop(L, table);
}

/* json_encode(value) -> text; the keys of objects are sorted, so that equal values give equal text.
 */
static int core_json_encode(lua_State *L) {
    size_t n;
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    /* held by owners, because the pushes below may raise */
    owner *root = new_owner(L, release_json), *text = new_owner(L, mg_free);
    lua_pushvalue(L, 1);
    root->held = value_to_json(L);
    if (!root->held) return fail_no_memory(L);
    if (lua_istable(L, -1)) fill_json_from_table(L, root->held, 0);
    text->held = mg_json_text(root->held, 1, &n);
    if (!text->held) return bind_raise(L);
    lua_pushlstring(L, text->held, n);
    release_owner(text), release_owner(root);
    return 1;
}

/* ---- JSON to Lua values ---- */

/* Pushes the Lua value of a JSON value. The parser has limited the depth. */
static void push_json(lua_State *L, json_t *value) {
    luaL_checkstack(L, 4, "json_decode");
    switch (json_typeof(value)) {
    case JSON_NULL: lua_pushlightuserdata(L, NULL); return;
    case JSON_TRUE: lua_pushboolean(L, 1); return;
    case JSON_FALSE: lua_pushboolean(L, 0); return;
    case JSON_INTEGER: lua_pushnumber(L, (double)json_integer_value(value)); return;
    case JSON_REAL: lua_pushnumber(L, json_real_value(value)); return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return;
    default: break;
    }
    lua_newtable(L);
    for (size_t i = 0; i < json_array_size(value); i++) {
        push_json(L, json_array_get(value, i));
        lua_rawseti(L, -2, (int)i + 1);
    }
    const char *key;
    json_t *field;
    json_object_foreach(value, key, field) {
        push_json(L, field);
        lua_setfield(L, -2, key);
    }
}

/* json_decode(text) -> value; null becomes core.null. */
static int core_json_decode(lua_State *L) {
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    owner *root = new_owner(L, release_json);
    root->held = mg_json_parse(text, n, "json_decode");
    if (!root->held) return bind_raise(L);
    push_json(L, root->held);
    release_owner(root);
    return 1;
}

/* ---- stores ---- */

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

/* store_save(path, {name = tensor, ...}, [{key = text, ...}]).
 *
 * Values that are not tensors yet are converted, so variables can be given as they are. */
static int core_store_save(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 3);
    bind_poll(L);
    owner *o = new_owner(L, release_store);
    mg_store *store = o->held = mg_store_new();
    if (!store) return bind_raise(L);
    add_tensors(L, store);
    add_notes(L, store);
    evaluate_store(L, store);
    bind_check(L, mg_store_save(store, path));
    release_owner(o);
    return 0;
}

/* store_load(path) -> {name = tensor, ...}, {key = text, ...}.
 *
 * The whole file is read before the tables are made. */
static int core_store_load(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    bind_poll(L);
    owner *o = new_owner(L, release_store);
    const mg_store *store = o->held = mg_store_load(path);
    if (!store) return bind_raise(L);
    lua_newtable(L);
    for (size_t i = 0; i < store->n_tensors; i++) {
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_tensor_retain(store->tensors[i].tensor));
        bind_account(L, mg_tensor_bytes(*place));
        lua_setfield(L, -2, store->tensors[i].name);
    }
    lua_newtable(L);
    for (size_t i = 0; i < store->n_notes; i++) {
        lua_pushstring(L, store->notes[i].text);
        lua_setfield(L, -2, store->notes[i].key);
    }
    release_owner(o);
    return 2;
}

/* ---- files and folders ---- */

/* file_exists(path) -> whether a regular file is there. */
static int core_file_exists(lua_State *L) {
    lua_pushboolean(L, mg_io_exists(luaL_checkstring(L, 1)));
    return 1;
}

/* check_creatable(path): raises unless a file could be made there. */
static int core_check_creatable(lua_State *L) {
    bind_check(L, mg_io_check_creatable(luaL_checkstring(L, 1)));
    return 0;
}

/* make_folder(path): with its parents. */
static int core_make_folder(lua_State *L) {
    bind_check(L, mg_io_make_folder(luaL_checkstring(L, 1)));
    return 0;
}

/* JSON null is light userdata NULL, as in other Lua libraries. */
void bind_open_io(lua_State *L) {
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    lua_pushlightuserdata(L, EMPTY_ARRAY);
    lua_setfield(L, -2, "empty_array");
}

const luaL_Reg mg_bind_io[] = {
    {"json_encode", core_json_encode}, {"json_decode", core_json_decode},
    {"store_save", core_store_save},   {"store_load", core_store_load},
    {"file_exists", core_file_exists}, {"check_creatable", core_check_creatable},
    {"make_folder", core_make_folder}, {NULL, NULL}};
