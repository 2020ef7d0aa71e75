/* Variables in Lua: a handle that behaves as its current value in every op. */
#include "bind/bind.h"
#include "graph/graph.h"
#include <string.h>

static mg_variable *check_variable(lua_State *L, int index, const char *who) {
    mg_variable *v = bind_to_variable(L, index);
    if (!v) bind_fail(L, MG_USAGE, "%s: expected a variable, got %s", who, luaL_typename(L, index));
    return v;
}

/* variable(value, {name=, trainable=}) */
static int core_variable(lua_State *L) {
    bind_poll(L);
    const char *name = NULL;
    bool trainable = true;
    lua_settop(L, 2);
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "name");
        name = luaL_optstring(L, -1, NULL);
        lua_getfield(L, 2, "trainable");
        trainable = lua_isnil(L, -1) || lua_toboolean(L, -1);
    }
    mg_tensor *value = bind_take_tensor(L, 1, NULL, "variable");
    mg_variable **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, BIND_VARIABLE);
    lua_setmetatable(L, -2);
    *place = mg_variable_new(value, name, trainable);
    return *place ? 1 : bind_raise(L);
}

static int variable_value(lua_State *L) {
    mg_variable *v = check_variable(L, 1, "value");
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_variable_read(v));
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
    v->trainable = lua_toboolean(L, 3);
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

const luaL_Reg mg_bind_variable[] = {
    {"variable", core_variable}, {"is_variable", core_is_variable}, {NULL, NULL}};
