/* Gradients in Lua: value_and_grad, grad, no_grad.
 *
 * While a recording is open, evaluated tensors keep their history, so that the function may read
 * values (item, print) and still be differentiated. Every exit from a call, including errors,
 * closes the recording. */
#include "bind/bind.h"
#include "graph/graph.h"

enum { FN = 1, VARS = 2 }; /* upvalues */

/* The function's first result, at index, which must be a tensor. Otherwise closes the recording and
 * raises. */
static mg_tensor *recorded_result(lua_State *L, int index, const char *who) {
    const bool given = lua_gettop(L) >= index;
    mg_tensor *y = given ? bind_to_tensor(L, index) : NULL;
    if (y) return y;
    mg_recording_end();
    bind_fail(L, MG_USAGE, "%s: the function must return a tensor of one number, got %s", who,
              given ? luaL_typename(L, index) : "nothing");
    return NULL;
}

/* Calls the function at index `fn` with the arguments above it. Leaves its results there and pushes
 * an array of the gradients of the first result w.r.t. wrt[0..n-1], with false where it does not
 * depend on wrt[i]. */
static void differentiate(lua_State *L, int fn, mg_tensor *const *wrt, int n, const char *who) {
    mg_recording_begin();
    if (lua_pcall(L, lua_gettop(L) - fn, LUA_MULTRET, 0) != 0) {
        mg_recording_end();
        lua_error(L); /* the function's own error, unchanged */
    }
    mg_tensor *y = recorded_result(L, fn, who);
    mg_tensor **grads = lua_newuserdata(L, ((size_t)n + 1) * sizeof *grads);
    const mg_status status = mg_grad(y, wrt, n, grads);
    mg_recording_end();
    bind_check(L, status);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        if (grads[i])
            *bind_new_tensor(L) = grads[i];
        else
            lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_remove(L, -2);
}

/* The values of the variables or tensors in the array at stack position `vars`, at the beginning of
 * the call. Pushes the list and a table that anchors its tensors. */
static mg_tensor **entry_values(lua_State *L, int vars, int n) {
    mg_tensor **wrt = lua_newuserdata(L, ((size_t)n + 1) * sizeof *wrt);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, vars, i + 1);
        mg_variable *v = bind_to_variable(L, -1);
        if (v) { /* without autocast: the gradient has the dtype of the variable itself */
            lua_pop(L, 1);
            mg_tensor **place = bind_new_tensor(L);
            bind_fill(L, place, mg_variable_read(v));
        } else if (!bind_to_tensor(L, -1)) {
            bind_fail(L, MG_USAGE, "value_and_grad: entry %d of the variables is a %s", i + 1,
                      luaL_typename(L, -1));
        }
        wrt[i] = bind_to_tensor(L, -1);
        lua_rawseti(L, -2, i + 1);
    }
    return wrt;
}

/* The closure that value_and_grad returns: (...) -> value, gradients, further results. */
static int value_and_grad_call(lua_State *L) {
    bind_poll(L);
    const int n = (int)lua_objlen(L, lua_upvalueindex(VARS));
    mg_tensor **wrt = entry_values(L, lua_upvalueindex(VARS), n);
    lua_insert(L, 1); /* the anchors of wrt, and wrt */
    lua_insert(L, 1);
    lua_pushvalue(L, lua_upvalueindex(FN));
    lua_insert(L, 3);
    differentiate(L, 3, wrt, n, "value_and_grad");
    lua_insert(L, 4); /* value, gradients, further results of the function */
    return lua_gettop(L) - 2;
}

/* value_and_grad(fn, variables) -> a function that returns fn's value and an array of gradients. */
static int core_value_and_grad(lua_State *L) {
    bind_want(L, 1, LUA_TFUNCTION, "value_and_grad");
    if (bind_to_variable(L, 2)) { /* a lone variable */
        lua_createtable(L, 1, 0);
        lua_pushvalue(L, 2);
        lua_rawseti(L, -2, 1);
        lua_replace(L, 2);
    }
    if (!lua_istable(L, 2))
        return bind_fail(L, MG_USAGE, "value_and_grad: expected an array of variables, got %s",
                         luaL_typename(L, 2));
    char fault[200];
    if (bind_array_length(L, 2, fault, sizeof fault) < 0)
        bind_fail(L, MG_USAGE, "value_and_grad: the variables: %s", fault);
    lua_settop(L, 2);
    lua_pushcclosure(L, value_and_grad_call, 2);
    return 1;
}

/* The closure that grad returns: (x, ...) -> the gradient of fn(x, ...) w.r.t. x. */
static int grad_call(lua_State *L) {
    bind_poll(L);
    mg_tensor *x = bind_take_tensor(L, 1, NULL, "grad");
    lua_pushvalue(L, 1);
    lua_insert(L, 1); /* keeps x */
    lua_pushvalue(L, lua_upvalueindex(FN));
    lua_insert(L, 2);
    differentiate(L, 2, &x, 1, "grad");
    lua_rawgeti(L, -1, 1);
    return 1;
}

/* grad(fn) -> a function that returns the gradient w.r.t. its first argument. */
static int core_grad(lua_State *L) {
    bind_want(L, 1, LUA_TFUNCTION, "grad");
    lua_settop(L, 1);
    lua_pushcclosure(L, grad_call, 1);
    return 1;
}

/* no_grad(fn, ...) -> fn's results; no gradient flows through its tensors. */
static int core_no_grad(lua_State *L) {
    bind_want(L, 1, LUA_TFUNCTION, "no_grad");
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    for (int i = 1; i <= lua_gettop(L); i++) {
        mg_tensor *t = bind_to_tensor(L, i);
        if (!t) continue;
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_apply(mg_op_find("stop_gradient"), &t, 1, NULL));
        lua_replace(L, i);
    }
    return lua_gettop(L);
}

/* recording() -> whether a gradient is being taken. */
static int core_recording(lua_State *L) {
    lua_pushboolean(L, mg_recording());
    return 1;
}

const luaL_Reg mg_bind_grad[] = {{"value_and_grad", core_value_and_grad},
                                 {"grad", core_grad},
                                 {"no_grad", core_no_grad},
                                 {"recording", core_recording},
                                 {NULL, NULL}};
