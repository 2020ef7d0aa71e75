/* Tensors in Lua: their userdata, and how Lua values become tensors.
 *
 * A tensor userdata holds one owned mg_tensor pointer, NULL after :free(). Numbers become lazy
 * `full` tensors, which plans fold; nested tables are read by nested.c. Methods and metatable are
 * in tensor_methods.c. */
#include "bind/bind.h"
#include "core/context.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/recipe.h"
#include "ops/attrs.h"
#include <math.h>
#include <string.h>

/* As keras.config.floatx: see bind_floatx. */
static _Thread_local mg_dtype floatx = MG_F32;

mg_dtype bind_floatx(void) {
    return floatx;
}

/* ---- userdata ---- */

/* The metatable is set while the pointer is NULL, so that the collector may come at any time. */
mg_tensor **bind_new_tensor(lua_State *L) {
    mg_tensor **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, BIND_TENSOR);
    lua_setmetatable(L, -2);
    bind_note_made(L);
    return place;
}

/* A tensor without a value takes about 1 KiB outside the Lua heap. */
void bind_fill(lua_State *L, mg_tensor **place, mg_tensor *owned) {
    if (!owned) bind_raise(L);
    *place = owned;
    bind_account(L, 1024);
}

/* The userdata at index if its metatable has this name, else NULL (luaL_checkudata would raise). */
static void *userdata_of_kind(lua_State *L, int index, const char *name) {
    void *p = lua_touserdata(L, index);
    if (!p || !lua_getmetatable(L, index)) return NULL;
    luaL_getmetatable(L, name);
    const bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same ? p : NULL;
}

/* A freed tensor is an error of the user's program, which still uses a tensor that :free() or tidy
 * has released. */
mg_tensor *bind_to_tensor(lua_State *L, int index) {
    mg_tensor **place = userdata_of_kind(L, index, BIND_TENSOR);
    if (!place) return NULL;
    if (!*place) bind_fail(L, MG_USAGE, "the tensor was freed");
    return *place;
}

mg_tensor *bind_peek_tensor(lua_State *L, int index) {
    mg_tensor **place = userdata_of_kind(L, index, BIND_TENSOR);
    return place ? *place : NULL;
}

/* A variable is never freed by hand, so there is nothing to check. */
mg_variable *bind_to_variable(lua_State *L, int index) {
    mg_variable **place = userdata_of_kind(L, index, BIND_VARIABLE);
    return place ? *place : NULL;
}

/* ---- from Lua values ---- */

/* The dtype of a number beside the tensor `like`: that of the tensor, unless the number would lose
 * its fraction or not fit: then a wider one. */
static mg_dtype number_dtype(double v, const mg_tensor *like) {
    if (!like) return floatx;
    const mg_dtype t = (mg_dtype)like->dtype;
    if (mg_dtype_is_float(t)) return t; /* float16 beside 0.1 stays float16 */
    if (v != floor(v) || !isfinite(v)) return MG_F32;
    if (t == MG_U8 && v >= 0 && v <= UINT8_MAX) return t;
    if (t < MG_I64 && v >= INT32_MIN && v <= INT32_MAX) return MG_I32;
    return v >= (double)INT64_MIN && v < -(double)INT64_MIN ? MG_I64 : MG_F32;
}

/* Pushes a tensor of one number; borrowed. */
static mg_tensor *push_scalar(lua_State *L, double v, mg_dtype dtype) {
    const mg_full_attrs attrs = {.value = v, .dtype = dtype};
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("full"), NULL, 0, &attrs));
    return *place;
}

/* Called for every operand of every op.
 *
 * The new userdata replaces the argument on the stack, so it lives as long as the call. */
mg_tensor *bind_take_tensor(lua_State *L, int index, const mg_tensor *like, const char *who) {
    mg_tensor *t = bind_to_tensor(L, index);
    if (t) return t;
    mg_variable *v = bind_to_variable(L, index);
    if (v) {
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, bind_read_variable(v));
        t = *place;
    } else if (lua_type(L, index) == LUA_TNUMBER) {
        const double number = lua_tonumber(L, index);
        t = push_scalar(L, number, number_dtype(number, like));
    } else if (lua_isboolean(L, index)) {
        t = push_scalar(L, lua_toboolean(L, index), MG_BOOL);
    } else if (lua_istable(L, index)) {
        t = bind_from_table(L, index, -1, NULL, who);
    } else {
        bind_fail(L, MG_USAGE, "%s: expected a tensor, got %s", who, luaL_typename(L, index));
    }
    lua_replace(L, index);
    return t;
}

/* ---- evaluation ---- */

/* Reports the results to the collector first, so that it can free garbage to make room for them.
 * Other tensors of the history that are still referenced, even if only by garbage, get values too;
 * these are reported afterwards.
 *
 * An evaluation that ran out of memory has committed nothing, so it can be repeated. */
void bind_eval(lua_State *L, mg_tensor *const *t, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += t[i]->buffer ? 0 : mg_tensor_bytes(t[i]);
    bind_account(L, bytes);
    if (bytes) bind_note_caller(L, &(bind_line){.text = NULL});
    mg_status status = mg_eval(t, n);
    if (status == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_eval(t, n);
    }
    mg_context_get()->origin.where = NULL;
    const size_t all = mg_eval_take_bytes();
    bind_account(L, all > bytes ? all - bytes : 0);
    bind_check(L, status);
}

/* eval(t, ...) -> the same tensors, computed in one plan. */
static int core_eval(lua_State *L) {
    const int n = lua_gettop(L);
    bind_poll(L);
    bind_visit(L);
    /* + 1: a userdata of no bytes is not portable */
    mg_tensor **list = lua_newuserdata(L, ((size_t)n + 1) * sizeof *list);
    for (int i = 1; i <= n; i++) list[i - 1] = bind_take_tensor(L, i, NULL, "eval");
    bind_eval(L, list, n);
    lua_settop(L, n);
    return n;
}

/* ---- options ---- */

/* Used for options of every kind: the message begins with the function or op. */
int bind_dtype_option(lua_State *L, int index, const char *who) {
    if (lua_isnoneornil(L, index)) return -1;
    if (lua_type(L, index) != LUA_TSTRING)
        bind_fail(L, MG_USAGE, "%s: the dtype must be a name, got %s", who,
                  luaL_typename(L, index));
    const char *name = lua_tostring(L, index);
    const int t = mg_dtype_from_name(name);
    if (t >= 0) return t;
    const char *names[MG_N_DTYPES];
    for (int i = 0; i < MG_N_DTYPES; i++) names[i] = mg_dtype_name((mg_dtype)i);
    return bind_fail(L, MG_USAGE, "%s: unknown dtype \"%s\"%s", who, name,
                     mg_name_hint(name, names, MG_N_DTYPES, "dtype"));
}

/* check_dtype(who, name): raises an error that begins with `who` unless it names a dtype or is
 * nil. */
static int core_check_dtype(lua_State *L) {
    bind_dtype_option(L, 2, luaL_checkstring(L, 1));
    return 0;
}

/* tensor(value, {dtype=, device=}) from a number, a boolean or a nested table. Inside a trace it is
 * a constant of the plan. */
static int core_tensor(lua_State *L) {
    bind_poll(L);
    int dtype = -1;
    mg_device *device = NULL;
    if (!lua_isnoneornil(L, 2)) {
        static const char *const known[] = {"dtype", "device"};
        bind_check_options(L, 2, "tensor", known, 2);
        lua_getfield(L, 2, "dtype");
        dtype = bind_dtype_option(L, -1, "tensor");
        lua_getfield(L, 2, "device");
        if (!lua_isnil(L, -1)) device = bind_device(L, luaL_checkstring(L, -1));
    }
    if (lua_istable(L, 1)) return bind_from_table(L, 1, dtype, device, "tensor"), 1;
    if (lua_type(L, 1) == LUA_TNUMBER || lua_isboolean(L, 1)) {
        const double v = lua_isboolean(L, 1) ? lua_toboolean(L, 1) : lua_tonumber(L, 1);
        const mg_dtype t = dtype >= 0 ? (mg_dtype)dtype : lua_isboolean(L, 1) ? MG_BOOL : floatx;
        const mg_shape none = MG_SHAPE();
        uint64_t raw[1]; /* aligned room for any element */
        mg_from_double(raw, &v, t, 1);
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_tensor_from_host(raw, t, &none, device));
        return 1;
    }
    return bind_fail(L, MG_USAGE, "tensor: expected a number or a table of numbers, got %s",
                     luaL_typename(L, 1));
}

/* ---- settings and queries ---- */

/* dtype_name(name) -> the canonical spelling ("float32"), or nil if there is no such dtype. */
static int core_dtype_name(lua_State *L) {
    const int t = lua_type(L, 1) == LUA_TSTRING ? mg_dtype_from_name(lua_tostring(L, 1)) : -1;
    if (t < 0) return 0;
    lua_pushstring(L, mg_dtype_name((mg_dtype)t));
    return 1;
}

/* floatx([name]) -> the default floating dtype, after setting it if a name is given. */
static int core_floatx(lua_State *L) {
    const int t = bind_dtype_option(L, 1, "set_floatx");
    if (t >= 0 && !mg_dtype_is_float((mg_dtype)t))
        return bind_fail(L, MG_USAGE, "set_floatx: %s is not a floating point dtype",
                         mg_dtype_name((mg_dtype)t));
    if (t >= 0) floatx = (mg_dtype)t;
    lua_pushstring(L, mg_dtype_name(floatx));
    return 1;
}

/* The tensor at index; of a result of a recorded run, the tensor that made it. NULL: it is a plain
 * value, or something else. */
static const mg_tensor *lazy_tensor(lua_State *L, int index) {
    mg_tensor *t = bind_to_tensor(L, index);
    while (t && (t->recipe || (t->op && strcmp(t->op->name, "recorded") == 0))) {
        if (t->recipe) bind_check(L, mg_recipe_expand(t));
        t = t->inputs[0];
    }
    return t && t->kind == MG_LAZY && t->op ? t : NULL;
}

/* producer(t) -> the name of the op that made t, and its axis counted from 1 if it has one; nil if
 * t has no history. */
static int core_producer(lua_State *L) {
    const mg_tensor *t = lazy_tensor(L, 1);
    if (!t) return 0;
    lua_pushstring(L, t->op->name);
    for (int i = 0; i < t->op->n_attrs; i++) {
        const mg_attr *a = &t->op->attrs[i];
        if (a->type != MG_ATTR_AXIS) continue;
        const int64_t axis = *(const int64_t *)((const char *)t->attrs + a->offset);
        lua_pushnumber(L, (double)(axis < 0 ? axis + t->shape.rank : axis) + 1);
        return 2;
    }
    return 1;
}

/* producer_input(t, i) -> input i of the op that made t; nil if there is none. */
static int core_producer_input(lua_State *L) {
    const mg_tensor *t = lazy_tensor(L, 1);
    const int i = (int)luaL_checkinteger(L, 2);
    if (!t || i < 1 || i > t->n_inputs) return 0;
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_tensor_retain(t->inputs[i - 1]));
    return 1;
}

/* is_tensor(v): true also for a tensor that was freed. */
static int core_is_tensor(lua_State *L) {
    lua_pushboolean(L, userdata_of_kind(L, 1, BIND_TENSOR) != NULL);
    return 1;
}

const luaL_Reg mg_bind_tensor[] = {{"tensor", core_tensor},
                                   {"eval", core_eval},
                                   {"floatx", core_floatx},
                                   {"producer", core_producer},
                                   {"producer_input", core_producer_input},
                                   {"is_tensor", core_is_tensor},
                                   {"dtype_name", core_dtype_name},
                                   {"check_dtype", core_check_dtype},
                                   {NULL, NULL}};
