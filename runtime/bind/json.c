/* JSON in Lua: json_encode and json_decode. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "io/json.h"
#include <math.h>
#include <string.h>

/* What owners of this file hold. */
static void release_json(void *value) {
    json_decref(value);
}

/* ---- Lua values to JSON ---- */

/* core.null and core.empty_array are light userdata: NULL, and this address. */
static char empty_array_key;
#define EMPTY_ARRAY ((void *)&empty_array_key)

/* For functions of jansson that return NULL: they set no error message. */
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
    /* an object: is_array has checked every key of an array */
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
    bind_owner *root = bind_new_owner(L, release_json), *text = bind_new_owner(L, mg_free);
    lua_pushvalue(L, 1);
    root->held = value_to_json(L);
    if (!root->held) return fail_no_memory(L);
    if (lua_istable(L, -1)) fill_json_from_table(L, root->held, 0);
    text->held = mg_json_text(root->held, 1, &n);
    if (!text->held) return bind_raise(L);
    lua_pushlstring(L, text->held, n);
    bind_release_owner(text), bind_release_owner(root);
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
    bind_owner *root = bind_new_owner(L, release_json);
    root->held = mg_json_parse(text, n, "json_decode");
    if (!root->held) return bind_raise(L);
    push_json(L, root->held);
    bind_release_owner(root);
    return 1;
}

/* JSON null is light userdata NULL, as in other Lua libraries. */
void bind_open_json(lua_State *L) {
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    lua_pushlightuserdata(L, EMPTY_ARRAY);
    lua_setfield(L, -2, "empty_array");
}

const luaL_Reg mg_bind_json[] = {
    {"json_encode", core_json_encode}, {"json_decode", core_json_decode}, {NULL, NULL}};
