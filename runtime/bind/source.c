/* Sources and transforms in Lua: userdata, released by the collector, and information about
 * sources. */
#include "bind/source.h"
#include "bind/bind.h"
#include "data/fingerprint.h"
#include "data/sources/sources.h"

#define BIND_SOURCE "mgpu.source"
#define BIND_TRANSFORM "mgpu.transform"

/* ---- userdata ---- */

static int source_gc(lua_State *L) {
    mg_source **place = luaL_checkudata(L, 1, BIND_SOURCE);
    mg_source_release(*place);
    *place = NULL;
    return 0;
}

static int transform_gc(lua_State *L) {
    mg_transform **place = luaL_checkudata(L, 1, BIND_TRANSFORM);
    mg_transform_release(*place);
    *place = NULL;
    return 0;
}

static void *new_userdata(lua_State *L, const char *type) {
    void **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, type);
    lua_setmetatable(L, -2);
    return place;
}

mg_source **bind_new_source(lua_State *L) {
    return new_userdata(L, BIND_SOURCE);
}

mg_transform **bind_new_transform(lua_State *L) {
    return new_userdata(L, BIND_TRANSFORM);
}

/* The object of the userdata at index; NULL if it is not of this type or is empty. */
static void *held(lua_State *L, int index, const char *type) {
    void **place = lua_touserdata(L, index);
    if (!place || !lua_getmetatable(L, index)) return NULL;
    luaL_getmetatable(L, type);
    const bool right = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return right ? *place : NULL;
}

mg_source *bind_to_source(lua_State *L, int index, const char *who) {
    mg_source *s = held(L, index, BIND_SOURCE);
    if (!s) bind_fail(L, MG_USAGE, "%s: expected a source, got a %s", who, luaL_typename(L, index));
    return s;
}

mg_transform *bind_to_transform(lua_State *L, int index, const char *who) {
    mg_transform *t = held(L, index, BIND_TRANSFORM);
    if (!t)
        bind_fail(L, MG_USAGE, "%s: expected a transform, got a %s", who, luaL_typename(L, index));
    return t;
}

static void define_userdata(lua_State *L, const char *type, lua_CFunction gc) {
    luaL_newmetatable(L, type);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

void bind_open_source(lua_State *L) {
    define_userdata(L, BIND_SOURCE, source_gc);
    define_userdata(L, BIND_TRANSFORM, transform_gc);
}

/* ---- information about sources ---- */

static void push_field(lua_State *L, const mg_field *f) {
    lua_createtable(L, 0, 3);
    lua_pushstring(L, f->text ? "string" : mg_dtype_name(f->dtype));
    lua_setfield(L, -2, "dtype");
    const mg_shape shape = f->texts ? MG_SHAPE(f->texts) : f->shape;
    lua_createtable(L, shape.rank, 0);
    for (int i = 0; i < shape.rank; i++) {
        lua_pushnumber(L, (double)shape.dim[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "shape");
}

/* source_info(source) -> {rows = n, {dtype =, shape =}, ...}: the number of rows, and each field; a
 * size that differs from row to row is -1, and a field of strings has dtype "string". */
static int core_source_info(lua_State *L) {
    const mg_source *s = bind_to_source(L, 1, "source_info");
    lua_createtable(L, s->n_fields, 1);
    lua_pushnumber(L, (double)s->n_rows);
    lua_setfield(L, -2, "rows");
    for (int k = 0; k < s->n_fields; k++) {
        push_field(L, &s->field[k]);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

/* source_fingerprint(source) -> a whole number below 2^52: see data/fingerprint.h. */
static int core_source_fingerprint(lua_State *L) {
    uint64_t hash;
    bind_check(L, mg_fingerprint_source(bind_to_source(L, 1, "source_fingerprint"), &hash));
    lua_pushnumber(L, (double)(hash >> 12));
    return 1;
}

/* ---- sources made from values of Lua ---- */

/* source_tensors({tensor, ...}) -> a source of their rows. They must be evaluated and in host
 * memory. */
static int core_source_tensors(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    const int n = (int)lua_objlen(L, 1);
    if (n < 1 || n > MG_SOURCE_FIELDS)
        bind_fail(L, MG_USAGE, "from_tensors: got %d tensors; 1 to %d are possible", n,
                  MG_SOURCE_FIELDS);
    mg_tensor **tensors = lua_newuserdata(L, (size_t)n * sizeof(mg_tensor *));
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        tensors[i] = bind_to_tensor(L, -1); /* the table keeps it */
        lua_pop(L, 1);
        if (!tensors[i]) bind_fail(L, MG_USAGE, "from_tensors: entry %d is not a tensor", i + 1);
    }
    mg_source **place = bind_new_source(L);
    if (!(*place = mg_tensors_source(tensors, n))) return bind_raise(L);
    return 1;
}

/* source_transform(source, field, transform) -> a source of the same rows, the field (from 1) after
 * the transform. */
static int core_source_transform(lua_State *L) {
    mg_source *inner = bind_to_source(L, 1, "source_transform");
    const lua_Number field = luaL_checknumber(L, 2);
    mg_transform *transform = bind_to_transform(L, 3, "source_transform");
    if (!(field >= 1 && field <= inner->n_fields))
        bind_fail(L, MG_USAGE, "%s: there is no field %g: the rows have %d", transform->api->name,
                  field, inner->n_fields);
    mg_source **place = bind_new_source(L);
    if (!(*place = mg_transformed_source(inner, (int)field - 1, transform))) return bind_raise(L);
    return 1;
}

/* ---- sources made of sources ---- */

enum { MOST_JOINED = 1000 };

typedef mg_source *join_function(mg_source *const *sources, int n);

/* fn of the sources in the array at 1. */
static int join_sources(lua_State *L, const char *who, join_function *fn) {
    mg_source *sources[MOST_JOINED];
    luaL_checktype(L, 1, LUA_TTABLE);
    const int n = (int)lua_objlen(L, 1);
    if (n < 1 || n > MOST_JOINED)
        bind_fail(L, MG_USAGE, "%s: got %d datasets; 1 to %d are possible", who, n, MOST_JOINED);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        sources[i] = bind_to_source(L, -1, who); /* the table keeps it */
        lua_pop(L, 1);
    }
    mg_source **place = bind_new_source(L);
    if (!(*place = fn(sources, n))) return bind_raise(L);
    return 1;
}

/* source_zip({source, ...}) -> a source of rows with the fields of all of them. */
static int core_source_zip(lua_State *L) {
    return join_sources(L, "zip", mg_zipped_source);
}

/* source_concatenate({source, ...}) -> a source of the rows of one after the other. */
static int core_source_concatenate(lua_State *L) {
    return join_sources(L, "concatenate", mg_concatenated_source);
}

/* source_cache(source, [path]) -> a source of the same rows, which are kept in memory or in a file.
 */
static int core_source_cache(lua_State *L) {
    mg_source *inner = bind_to_source(L, 1, "cache");
    const char *path = lua_isnoneornil(L, 2) ? NULL : bind_path(L, 2, "cache");
    mg_source **place = bind_new_source(L);
    *place = path ? mg_cache_file_source(inner, path) : mg_cached_source(inner);
    if (!*place) return bind_raise(L);
    return 1;
}

const luaL_Reg mg_bind_source[] = {
    {"source_info", core_source_info},       {"source_fingerprint", core_source_fingerprint},
    {"source_tensors", core_source_tensors}, {"source_transform", core_source_transform},
    {"source_zip", core_source_zip},         {"source_concatenate", core_source_concatenate},
    {"source_cache", core_source_cache},     {NULL, NULL}};
