/* Templates of results, and the results of a run: see jit.h. */
#include "bind/jit.h"

#define BIND_RESULTS "mgpu.jit.results"

enum { ANCHORS = 1, TEMPLATE }; /* stack positions, while outputs are taken */

/* Replaces the table on top of the stack by a copy in which fn(L, context) has replaced each value
 * on top of the stack. */
static void map_table(lua_State *L, void (*fn)(lua_State *, void *), void *context) {
    const int from = lua_gettop(L);
    luaL_checkstack(L, 8, "jit");
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, from);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        fn(L, context);
        lua_rawset(L, from + 1);
    }
    lua_remove(L, from);
}

/* ---- the template ---- */

/* Replaces the value on top of the stack by its template.
 *
 * Tensors are added to the outputs and to the table at ANCHORS; variables give their current value.
 */
static void push_template(lua_State *L, void *outputs) {
    bind_outputs *o = outputs;
    if (bind_to_variable(L, -1)) bind_take_tensor(L, lua_gettop(L), NULL, "jit");
    mg_tensor *t = bind_to_tensor(L, -1);
    if (t) {
        if (o->n == BIND_MAX_TENSORS)
            bind_fail(L, MG_USAGE, "mgpu.jit: the function returned more than %d tensors",
                      BIND_MAX_TENSORS);
        lua_rawseti(L, ANCHORS, o->n + 1);
        o->list[o->n++] = t;
        lua_pushlightuserdata(L, (void *)(uintptr_t)o->n);
        return;
    }
    const int type = lua_type(L, -1);
    /* a run could not create a new value of these types */
    if (type == LUA_TFUNCTION || type == LUA_TUSERDATA || type == LUA_TLIGHTUSERDATA ||
        type == LUA_TTHREAD)
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: the function returned a %s; results are tensors, numbers, "
                  "strings, booleans and tables of these",
                  luaL_typename(L, -1));
    if (type != LUA_TTABLE) return;
    if (o->depth++ == BIND_MAX_DEPTH)
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: the tables that the function returned nest deeper than %d: does one "
                  "contain itself?",
                  BIND_MAX_DEPTH);
    map_table(L, push_template, o);
    o->depth--;
}

/* The inverse of bind_push_results. */
void bind_outputs_take(lua_State *L, bind_outputs *o, int n_results) {
    o->depth = 0;
    lua_newtable(L);
    lua_insert(L, ANCHORS);
    lua_createtable(L, n_results, 0);
    lua_insert(L, TEMPLATE);
    for (int i = 1; i <= n_results; i++) {
        lua_pushvalue(L, TEMPLATE + i);
        push_template(L, o);
        lua_rawseti(L, TEMPLATE, i);
    }
    o->n_results = n_results;
    lua_settop(L, TEMPLATE);
}

/* ---- results ---- */

/* Replaces the template on top of the stack by a result: tensors go in for the light userdata. */
static void push_result(lua_State *L, void *list) {
    mg_tensor **results = list;
    if (lua_type(L, -1) == LUA_TLIGHTUSERDATA) {
        const size_t i = (size_t)(uintptr_t)lua_touserdata(L, -1);
        lua_pop(L, 1);
        mg_tensor **place = bind_new_tensor(L);
        *place = mg_tensor_retain(results[i - 1]);
        return;
    }
    if (lua_istable(L, -1)) map_table(L, push_result, list);
}

/* __gc, for a run that failed half-way. */
static int release_results(lua_State *L) {
    bind_results *r = luaL_checkudata(L, 1, BIND_RESULTS);
    for (int i = 0; i < r->n; i++) mg_tensor_release(r->list[i]);
    r->n = 0;
    return 0;
}

/* n stays 0 until a run has filled the list: until then there is nothing to release. */
bind_results *bind_new_results(lua_State *L, int n) {
    bind_results *r = lua_newuserdata(L, sizeof *r + (size_t)n * sizeof *r->list);
    r->room = n;
    r->n = 0;
    luaL_getmetatable(L, BIND_RESULTS);
    lua_setmetatable(L, -2);
    return r;
}

/* Bytes of memory that result i has taken: none if someone else holds it, an argument for instance,
 * or if an earlier result has the same. */
static size_t bytes_taken(const bind_results *r, int i) {
    mg_tensor *t = r->list[i];
    mg_buffer *buffer = t->buffer;
    int others = atomic_load(&t->refs) - 1 + (buffer ? atomic_load(&buffer->refs) - 1 : 0);
    for (int k = 0; others && k < r->n; k++) {
        const bool same = r->list[k] == t || (buffer && r->list[k]->buffer == buffer);
        if (same && k < i) return 0;
        others -= same && k > i;
    }
    return others ? 0 : mg_tensor_bytes(t);
}

/* Reports the tensors to the collector first. Once a tensor is in its userdata, r drops its own
 * reference. */
int bind_push_results(lua_State *L, bind_results *r, int template, int n_results) {
    size_t bytes = 0;
    r->n = r->room; /* from here on the collector may release them */
    for (int i = 0; i < r->n; i++) bytes += bytes_taken(r, i) + 512; /* for the tensor itself */
    bind_account(L, bytes);
    lua_rawgeti(L, LUA_REGISTRYINDEX, template);
    const int kept = lua_gettop(L);
    luaL_checkstack(L, n_results + 4, "jit");
    for (int i = 1; i <= n_results; i++) {
        lua_rawgeti(L, kept, i);
        push_result(L, r->list);
    }
    for (int i = 0; i < r->n; i++) mg_tensor_release(r->list[i]);
    r->n = 0;
    return n_results;
}

void bind_open_results(lua_State *L) {
    luaL_newmetatable(L, BIND_RESULTS);
    lua_pushcfunction(L, release_results), lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}
