/* Variables in Lua: a handle that behaves as its current value in every op. */
#include "bind/bind.h"
#include "bind/signature.h"
#include "graph/graph.h"
#include <string.h>

static mg_variable *check_variable(lua_State *L, int index, const char *who) {
    mg_variable *v = bind_to_variable(L, index);
    if (!v) bind_fail(L, MG_USAGE, "%s: expected a variable, got %s", who, luaL_typename(L, index));
    return v;
}

/* What floating variables are read as, while a layer computes in another dtype than its weights
 * have; -1: as they are. Gradients flow back through the cast. */
static _Thread_local int autocast = -1;

mg_tensor *bind_read_variable(mg_variable *v) {
    mg_tensor *value = mg_variable_read(v);
    if (!value || autocast < 0 || !v->autocast) return value;
    if (value->dtype == autocast || !mg_dtype_is_float((mg_dtype)value->dtype)) return value;
    const int64_t dtype = autocast;
    mg_tensor *cast = mg_apply(mg_op_find("cast"), &value, 1, &dtype);
    mg_tensor_release(value);
    return cast;
}

/* autocast(name of a floating dtype | nil): what variables are read as from here on. */
static int core_autocast(lua_State *L) {
    const int t = lua_isnoneornil(L, 1) ? -1 : mg_dtype_from_name(luaL_checkstring(L, 1));
    if (!lua_isnoneornil(L, 1) && (t < 0 || !mg_dtype_is_float((mg_dtype)t)))
        return bind_fail(L, MG_USAGE, "autocast: %s is not a floating point dtype",
                         lua_tostring(L, 1));
    autocast = t;
    return 0;
}

/* A boolean of the options at index 2; true if it is not given. */
static bool flag_option(lua_State *L, const char *name) {
    lua_getfield(L, 2, name);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        bind_fail(L, MG_USAGE, "variable: option \"%s\" must be true or false, got %s", name,
                  luaL_typename(L, -1));
    return lua_isnil(L, -1) || lua_toboolean(L, -1);
}

/* variable(value, {name=, trainable=, autocast=}) */
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
        trainable = flag_option(L, "trainable");
        cast = flag_option(L, "autocast");
    }
    mg_tensor *value = bind_take_tensor(L, 1, NULL, "variable");
    mg_variable **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, BIND_VARIABLE);
    lua_setmetatable(L, -2);
    *place = mg_variable_new(value, name, trainable);
    if (!*place) return bind_raise(L);
    (*place)->autocast = cast;
    return 1;
}

static int variable_value(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "value");
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, bind_read_variable(v));
    return 1;
}

static int variable_assign(lua_State *L) {
    bind_poll(L);
    mg_variable *v = check_variable(L, 1, "assign");
    mg_tensor *value = bind_take_tensor(L, 2, v->value, "assign");
    bind_check(L, mg_variable_assign(v, value));
    lua_settop(L, 1);
    return 1;
}

static int variable_gc(lua_State *L) {
    mg_variable **place = lua_touserdata(L, 1);
    mg_variable_release(*place);
    *place = NULL;
    return 0;
}

/* name, trainable, value, assign; everything else as a tensor's. Upvalue 1: the tensor's __index.
 */
static int variable_index(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "variable");
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

static int variable_newindex(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "variable");
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    if (strcmp(key, "trainable") != 0)
        return bind_fail(L, MG_USAGE,
                         "variable \"%s\": cannot set \"%s\": only trainable can be set; "
                         "its value is changed with :assign",
                         v->name, key);
    if (!lua_isboolean(L, 3))
        return bind_fail(L, MG_USAGE, "variable \"%s\": trainable must be true or false, got %s",
                         v->name, luaL_typename(L, 3));
    if (v->trainable != lua_toboolean(L, 3)) bind_turn_trainable(v);
    v->trainable = lua_toboolean(L, 3);
    return 0;
}

/* turn_trainable(layer): for lua/mgpu/nn/weights.lua, when it turns its `trainable`. */
static int core_turn_trainable(lua_State *L) {
    bind_turn_trainable(lua_topointer(L, 1));
    return 0;
}

static int core_is_variable(lua_State *L) {
    lua_pushboolean(L, bind_to_variable(L, 1) != NULL);
    return 1;
}

/* The metatable stands already (bind_open_tensor): names and assignment come on top. */
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

const luaL_Reg mg_bind_variable[] = {{"variable", core_variable},
                                     {"is_variable", core_is_variable},
                                     {"autocast", core_autocast},
                                     {"turn_trainable", core_turn_trainable},
                                     {NULL, NULL}};
