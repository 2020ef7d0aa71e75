/* Variables in Lua: userdata that behave like their current value in every op (bind_take_tensor
 * reads it), and can be assigned.
 *
 * They share the metamethods of tensors (bind_open_tensor); this file adds the fields name,
 * trainable, value and assign. */
#include "bind/bind.h"
#include "bind/jit.h"
#include "graph/graph.h"
#include <string.h>

/* The variable at index; raises if it is something else. */
static mg_variable *check_variable(lua_State *L, int index, const char *who) {
    mg_variable *v = bind_to_variable(L, index);
    if (!v) bind_fail(L, MG_USAGE, "%s: expected a variable, got %s", who, luaL_typename(L, index));
    return v;
}

/* The dtype in which floating variables are read while a layer of a mixed-precision policy is
 * called; -1: their own. Gradients flow back through the cast. */
static _Thread_local int autocast = -1;

/* In layers of mixed precision the cast is made at each read; plans merge equal casts. */
mg_tensor *bind_read_variable(mg_variable *v) {
    mg_tensor *value = mg_variable_read(v);
    if (!value || autocast < 0 || !v->autocast) return value;
    if (value->dtype == autocast || !mg_dtype_is_float((mg_dtype)value->dtype)) return value;
    const int64_t dtype = autocast;
    mg_tensor *cast = mg_apply(mg_op_find("cast"), &value, 1, &dtype);
    mg_tensor_release(value);
    return cast;
}

/* autocast(dtype or nil): sets it. lua/mgpu sets it around each layer's call. */
static int core_autocast(lua_State *L) {
    const int t = lua_isnoneornil(L, 1) ? -1 : mg_dtype_from_name(luaL_checkstring(L, 1));
    if (!lua_isnoneornil(L, 1) && (t < 0 || !mg_dtype_is_float((mg_dtype)t)))
        return bind_fail(L, MG_USAGE, "autocast: %s is not a floating point dtype",
                         lua_tostring(L, 1));
    autocast = t;
    return 0;
}

/* A boolean of the options at index 2; true if it is missing. */
static bool boolean_option(lua_State *L, const char *name) {
    lua_getfield(L, 2, name);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        bind_fail(L, MG_USAGE, "variable: option \"%s\" must be true or false, got %s", name,
                  luaL_typename(L, -1));
    return lua_isnil(L, -1) || lua_toboolean(L, -1);
}

/* variable(value, {name=, trainable=, autocast=}) -> the variable; autocast = false exempts it from
 * core.autocast. */
static int core_variable(lua_State *L) {
    bind_poll(L);
    const char *name = NULL;
    bool trainable = true, cast = true;
    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) {
        static const char *const known[] = {"name", "trainable", "autocast"};
        bind_check_options(L, 2, "variable", known, 3);
        lua_getfield(L, 2, "name");
        if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING)
            bind_fail(L, MG_USAGE, "variable: option \"name\" must be a string, got %s",
                      luaL_typename(L, -1));
        name = lua_tostring(L, -1);
        trainable = boolean_option(L, "trainable");
        cast = boolean_option(L, "autocast");
    }
    mg_tensor *value = bind_take_tensor(L, 1, NULL, "variable");
    /* an empty userdata first, so that an error frees what it holds */
    mg_variable **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, BIND_VARIABLE);
    lua_setmetatable(L, -2);
    *place = mg_variable_new(value, name, trainable);
    if (!*place) return bind_raise(L);
    (*place)->autocast = cast;
    return 1;
}

/* v:value() -> the current value as a tensor, as ops would read it. */
static int variable_value(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "value");
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, bind_read_variable(v));
    return 1;
}

/* v:assign(value) -> v. In a trace the assignment becomes part of the plan. */
static int variable_assign(lua_State *L) {
    bind_poll(L);
    mg_variable *v = check_variable(L, 1, "assign");
    mg_tensor *value = bind_take_tensor(L, 2, v->value, "assign");
    bind_check(L, mg_variable_assign(v, value));
    lua_settop(L, 1);
    return 1;
}

/* The variable lives on while a plan or a layer retains it. */
static int variable_gc(lua_State *L) {
    mg_variable **place = luaL_checkudata(L, 1, BIND_VARIABLE);
    mg_variable_release(*place);
    *place = NULL;
    return 0;
}

/* v.name, v.trainable and the methods value and assign; everything else is looked up as for a
 * tensor. Upvalue 1: the tensors' __index. */
static int variable_index(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "variable");
    lua_settop(L, 2); /* a script may call the metamethod itself */
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (strcmp(key, "name") == 0) return lua_pushstring(L, v->name), 1;
    if (strcmp(key, "trainable") == 0) return lua_pushboolean(L, v->trainable), 1;
    if (strcmp(key, "value") == 0) return lua_pushcfunction(L, variable_value), 1;
    if (strcmp(key, "assign") == 0) return lua_pushcfunction(L, variable_assign), 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
}

/* v.trainable = boolean; nothing else can be set. */
static int variable_newindex(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "variable");
    if (lua_type(L, 2) != LUA_TSTRING)
        return bind_fail(L, MG_USAGE,
                         "variable \"%s\": an entry cannot be set: make a new value with where, "
                         "concat or +, and give it to :assign",
                         v->name);
    const char *key = lua_tostring(L, 2);
    if (strcmp(key, "trainable") != 0)
        return bind_fail(L, MG_USAGE,
                         "variable \"%s\": cannot set \"%s\": only trainable can be set; "
                         "its value is changed with :assign",
                         v->name, key);
    if (!lua_isboolean(L, 3))
        return bind_fail(L, MG_USAGE, "variable \"%s\": trainable must be true or false, got %s",
                         v->name, luaL_typename(L, 3));
    /* plans depend on which variables are frozen */
    if (v->trainable != lua_toboolean(L, 3)) bind_turn_trainable(v);
    v->trainable = lua_toboolean(L, 3);
    return 0;
}

/* turn_trainable(layer): lua/mgpu/nn/weights.lua calls it when a layer's `trainable` changes. */
static int core_turn_trainable(lua_State *L) {
    bind_turn_trainable(lua_topointer(L, 1));
    return 0;
}

/* trainable_pattern() -> a number that tells which layers and variables have another `trainable`
 * than they were made with. */
static int core_trainable_pattern(lua_State *L) {
    lua_pushnumber(L, (double)(bind_trainable_pattern() >> 11)); /* 53 bits */
    return 1;
}

/* is_variable(v) -> boolean. */
static int core_is_variable(lua_State *L) {
    lua_pushboolean(L, bind_to_variable(L, 1) != NULL);
    return 1;
}

/* bind_open_tensor has made the metatable; the functions of this file replace or extend its
 * entries. */
void bind_open_variable(lua_State *L) {
    luaL_getmetatable(L, BIND_VARIABLE);
    lua_getfield(L, -1, "__index");
    lua_pushcclosure(L, variable_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, variable_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushcfunction(L, variable_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

/* prune_variables(): removes from the list of pending variables those that have a value now, and
 * those that nobody else holds; the list would keep both alive. */
static int core_prune_variables(lua_State *L) {
    (void)L;
    mg_variables_prune();
    return 0;
}

const luaL_Reg mg_bind_variable[] = {{"variable", core_variable},
                                     {"is_variable", core_is_variable},
                                     {"autocast", core_autocast},
                                     {"turn_trainable", core_turn_trainable},
                                     {"trainable_pattern", core_trainable_pattern},
                                     {"prune_variables", core_prune_variables},
                                     {NULL, NULL}};
