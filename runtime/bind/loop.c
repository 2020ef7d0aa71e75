/* Loops in Lua: scan, on which lua/mgpu/tensor/scan.lua is built. */
#include "bind/bind.h"
#include "core/context.h"
#include "graph/graph.h"
#include "graph/loop.h"

enum { STEPS = 1, REVERSE, CHECKPOINT, INITS, ARRAYS, FN, N_ARGS = FN };

/* Pushes a table of parameters for the tensors of the array at index. */
static void push_parameters(lua_State *L, mg_loop_trace *trace, int index,
                            mg_tensor *(*make)(mg_loop_trace *t, mg_tensor *input)) {
    const int n = (int)lua_objlen(L, index);
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        mg_tensor *input = bind_take_tensor(L, lua_gettop(L), NULL, "scan");
        mg_tensor *param = make(trace, input);
        if (!param) bind_raise(L);
        *bind_new_tensor(L) = mg_tensor_retain(param);
        lua_rawseti(L, -3, i);
        lua_pop(L, 1);
    }
}

/* Runs inside pcall while the body is open. Stack: the arguments of core_scan; upvalue: the trace.
 * Returns the array of results that the function has returned, with tensors only. */
static int trace_body(lua_State *L) {
    mg_loop_trace *trace = lua_touserdata(L, lua_upvalueindex(1));
    lua_pushvalue(L, FN);
    push_parameters(L, trace, INITS, mg_loop_carry);
    push_parameters(L, trace, ARRAYS, mg_loop_rows);
    lua_call(L, 2, 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    const int results = lua_gettop(L), n = (int)lua_objlen(L, results);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, results, i);
        bind_take_tensor(L, lua_gettop(L), NULL, "scan");
        lua_rawseti(L, results, i);
    }
    return 1;
}

/* Pushes an array of the scan's n results. */
static int push_results(lua_State *L, mg_tensor *scan, int n) {
    bind_fill(L, bind_new_tensor(L), scan); /* owned by the stack from here on */
    lua_createtable(L, n, 0);
    for (int k = 0; k < n; k++) {
        bind_push_result(L, scan, k);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

/* scan(steps, reverse, checkpoint, inits, arrays, fn) -> results
 *
 * inits: an array of tensors, the first carries. arrays: an array of tensors {steps, ...}.
 * fn(carries, entries) gets an array of parameters for each, and returns an array of tensors: the
 * next carries, then what is stacked over the steps. results: the last carries, then the stacks. */
static int core_scan(lua_State *L) {
    bind_poll(L);
    lua_settop(L, N_ARGS);
    const int64_t steps = (int64_t)luaL_checknumber(L, STEPS);
    if (steps < 1) return bind_fail(L, MG_USAGE, "scan: there must be at least 1 step");
    mg_loop_trace *trace =
        mg_loop_begin(steps, lua_toboolean(L, REVERSE), lua_toboolean(L, CHECKPOINT));
    if (!trace) return bind_raise(L);
    lua_pushlightuserdata(L, trace);
    lua_pushcclosure(L, trace_body, 1);
    for (int i = 1; i <= N_ARGS; i++) lua_pushvalue(L, i);
    if (lua_pcall(L, N_ARGS, 1, 0) != 0) {
        mg_loop_abandon(trace);
        return lua_error(L); /* fn's own error, unchanged */
    }
    const int n = (int)lua_objlen(L, -1);
    mg_tensor **results = lua_newuserdata(L, ((size_t)n + 1) * sizeof *results);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -2, i + 1);
        results[i] = bind_to_tensor(L, -1);
        lua_pop(L, 1);
    }
    bind_note_line(L);
    mg_tensor *scan = mg_loop_end(trace, results, n);
    mg_context_get()->origin.where = NULL;
    if (!scan) return bind_raise(L);
    return push_results(L, scan, n);
}

const luaL_Reg mg_bind_loop[] = {{"scan", core_scan}, {NULL, NULL}};
