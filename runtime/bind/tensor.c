/* Tensors in Lua: userdata, conversion from (nested.c) and to Lua values, the plain methods. */
#include "bind/bind.h"
#include "device/device.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include <math.h>
#include <string.h>

static _Thread_local mg_dtype floatx = MG_F32;

mg_dtype bind_floatx(void) {
    return floatx;
}

/* ---- userdata ---- */

mg_tensor **bind_new_tensor(lua_State *L) {
    mg_tensor **place = lua_newuserdata(L, sizeof *place);
    *place = NULL;
    luaL_getmetatable(L, BIND_TENSOR);
    lua_setmetatable(L, -2);
    bind_note_made(L);
    return place;
}

void bind_fill(lua_State *L, mg_tensor **place, mg_tensor *owned) {
    if (!owned) bind_raise(L);
    *place = owned;
    bind_account(L, 1024);
}

static void *test_userdata(lua_State *L, int index, const char *name) {
    void *p = lua_touserdata(L, index);
    if (!p || !lua_getmetatable(L, index)) return NULL;
    luaL_getmetatable(L, name);
    const bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same ? p : NULL;
}

mg_tensor *bind_to_tensor(lua_State *L, int index) {
    mg_tensor **place = test_userdata(L, index, BIND_TENSOR);
    if (!place) return NULL;
    if (!*place) bind_fail(L, MG_USAGE, "the tensor was freed");
    return *place;
}

mg_tensor *bind_peek_tensor(lua_State *L, int index) {
    mg_tensor **place = test_userdata(L, index, BIND_TENSOR);
    return place ? *place : NULL;
}

mg_variable *bind_to_variable(lua_State *L, int index) {
    mg_variable **place = test_userdata(L, index, BIND_VARIABLE);
    return place ? *place : NULL;
}

static int tensor_gc(lua_State *L) {
    mg_tensor **place = lua_touserdata(L, 1);
    mg_tensor_release(*place);
    *place = NULL;
    return 0;
}

/* ---- from Lua values ---- */

/* What a number becomes beside a tensor: its dtype, unless that would lose the fraction. */
static mg_dtype number_dtype(double v, const mg_tensor *like) {
    if (!like) return floatx;
    const mg_dtype t = (mg_dtype)like->dtype;
    if (mg_dtype_is_float(t)) return t;
    if (v != floor(v) || !isfinite(v)) return MG_F32;
    if (t == MG_BOOL) return MG_I32;
    return t == MG_U8 && (v < 0 || v > 255) ? MG_I32 : t;
}

static mg_tensor *scalar(lua_State *L, double v, mg_dtype dtype) {
    const mg_full_attrs attrs = {.value = v, .dtype = dtype};
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("full"), NULL, 0, &attrs));
    return *place;
}

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
        t = scalar(L, number, number_dtype(number, like));
    } else if (lua_isboolean(L, index)) {
        t = scalar(L, lua_toboolean(L, index), MG_BOOL);
    } else if (lua_istable(L, index)) {
        t = bind_from_table(L, index, -1, NULL, who);
    } else {
        bind_fail(L, MG_USAGE, "%s: expected a tensor, got %s", who, luaL_typename(L, index));
    }
    lua_replace(L, index);
    return t;
}

/* ---- evaluation ---- */

void bind_eval(lua_State *L, mg_tensor *const *t, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += t[i]->buffer ? 0 : mg_tensor_bytes(t[i]);
    bind_account(L, bytes);
    mg_status status = mg_eval(t, n);
    if (status == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_eval(t, n);
    }
    bind_check(L, status);
}

static int core_eval(lua_State *L) {
    const int n = lua_gettop(L);
    bind_poll(L);
    mg_tensor **list = lua_newuserdata(L, ((size_t)n + 1) * sizeof *list);
    for (int i = 1; i <= n; i++) list[i - 1] = bind_take_tensor(L, i, NULL, "eval");
    bind_eval(L, list, n);
    lua_settop(L, n);
    return n;
}

/* ---- options ---- */

static int dtype_option(lua_State *L, int index, const char *who) {
    if (lua_isnoneornil(L, index)) return -1;
    if (lua_type(L, index) != LUA_TSTRING)
        bind_fail(L, MG_USAGE, "%s: the dtype must be a name, got %s", who,
                  luaL_typename(L, index));
    const char *name = lua_tostring(L, index);
    const int t = mg_dtype_from_name(name);
    if (t >= 0) return t;
    const char *names[MG_N_DTYPES];
    for (int i = 0; i < MG_N_DTYPES; i++) names[i] = mg_dtype_name((mg_dtype)i);
    const char *near = mg_nearest_name(name, names, MG_N_DTYPES);
    return bind_fail(L, MG_USAGE, "%s: unknown dtype \"%s\"%s%s%s", who, name,
                     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* tensor(value, dtype, device): the options come apart in lua/mgpu/tensor/init.lua. */
static int core_tensor(lua_State *L) {
    bind_poll(L);
    int dtype = -1;
    mg_device *device = NULL;
    if (!lua_isnoneornil(L, 2)) {
        static const char *const known[] = {"dtype", "device"};
        bind_check_options(L, 2, "tensor", known, 2);
        lua_getfield(L, 2, "dtype");
        dtype = dtype_option(L, -1, "tensor");
        lua_getfield(L, 2, "device");
        if (!lua_isnil(L, -1) && !(device = mg_device_find(luaL_checkstring(L, -1)))) bind_raise(L);
    }
    if (lua_istable(L, 1)) return bind_from_table(L, 1, dtype, device, "tensor"), 1;
    if (lua_type(L, 1) == LUA_TNUMBER || lua_isboolean(L, 1)) {
        const double v = lua_isboolean(L, 1) ? lua_toboolean(L, 1) : lua_tonumber(L, 1);
        const mg_dtype t = dtype >= 0 ? (mg_dtype)dtype : lua_isboolean(L, 1) ? MG_BOOL : floatx;
        const mg_shape none = MG_SHAPE();
        uint64_t raw[1];
        mg_from_double(raw, &v, t, 1);
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_tensor_from_host(raw, t, &none, device));
        return 1;
    }
    return bind_fail(L, MG_USAGE, "tensor: expected a number or a table of numbers, got %s",
                     luaL_typename(L, 1));
}

/* ---- to Lua values ---- */

static void push_number(lua_State *L, mg_dtype t, double v) {
    if (t == MG_BOOL)
        lua_pushboolean(L, v != 0);
    else
        lua_pushnumber(L, v);
}

static void refuse_in_trace(lua_State *L, const char *who) {
    if (mg_trace_current())
        bind_fail(L, MG_USAGE,
                  "%s: not available inside mgpu.jit: the function is only being traced; "
                  "return the tensor and read it outside",
                  who);
}

static double *read_all(lua_State *L, mg_tensor *t) {
    const size_t n = (size_t)mg_tensor_count(t);
    bind_eval(L, &t, 1);
    double *values = lua_newuserdata(L, (n + 1) * sizeof *values);
    bind_check(L, mg_tensor_read_double(t, values));
    return values;
}

static int tensor_item(lua_State *L) {
    bind_poll(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "item");
    refuse_in_trace(L, "item");
    if (mg_tensor_count(t) != 1)
        return bind_fail(L, MG_USAGE,
                         "item: the tensor has %d elements (shape %s), not one: use "
                         ":totable()",
                         (int)mg_tensor_count(t), MG_SHAPE_TEXT(&t->shape));
    push_number(L, (mg_dtype)t->dtype, read_all(L, t)[0]);
    return 1;
}

static const double *push_nested(lua_State *L, const mg_tensor *t, int depth, const double *v) {
    if (depth == t->shape.rank) {
        push_number(L, (mg_dtype)t->dtype, *v);
        return v + 1;
    }
    luaL_checkstack(L, 3, "nested tables");
    const int n = (int)t->shape.dim[depth];
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        v = push_nested(L, t, depth + 1, v);
        lua_rawseti(L, -2, i);
    }
    return v;
}

static int tensor_totable(lua_State *L) {
    bind_poll(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "totable");
    refuse_in_trace(L, "totable");
    push_nested(L, t, 0, read_all(L, t));
    return 1;
}

/* ---- plain methods ---- */

static int tensor_shape(lua_State *L) {
    const mg_tensor *t = bind_take_tensor(L, 1, NULL, "shape");
    lua_createtable(L, t->shape.rank, 0);
    for (int i = 0; i < t->shape.rank; i++) {
        lua_pushnumber(L, (double)t->shape.dim[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int tensor_dtype(lua_State *L) {
    lua_pushstring(L, mg_dtype_name((mg_dtype)bind_take_tensor(L, 1, NULL, "dtype")->dtype));
    return 1;
}

static int tensor_device(lua_State *L) {
    lua_pushstring(L, bind_take_tensor(L, 1, NULL, "device")->device->name);
    return 1;
}

static int tensor_rank(lua_State *L) {
    lua_pushinteger(L, bind_take_tensor(L, 1, NULL, "rank")->shape.rank);
    return 1;
}

static int tensor_count(lua_State *L) {
    lua_pushnumber(L, (double)mg_tensor_count(bind_take_tensor(L, 1, NULL, "count")));
    return 1;
}

static int tensor_len(lua_State *L) {
    const mg_tensor *t = bind_take_tensor(L, 1, NULL, "#");
    if (t->shape.rank == 0)
        return bind_fail(L, MG_USAGE, "#: a tensor of one number has no length");
    lua_pushnumber(L, (double)t->shape.dim[0]);
    return 1;
}

static int tensor_free(lua_State *L) {
    if (!bind_to_tensor(L, 1)) return bind_fail(L, MG_USAGE, "free: not a tensor");
    return tensor_gc(L);
}

/* x on d as a tensor of its own, still to be copied; gradients flow back through it. */
static mg_tensor **push_placed(lua_State *L, mg_tensor *t, mg_device *d) {
    const mg_place_attrs attrs = {.device = (int64_t)(intptr_t)d};
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("place"), &t, 1, &attrs));
    return place;
}

/* A copy on a device (the same one for clone), made now. A plan needs none: in a trace the value
 * itself serves, and what lies where is the layers' to say. */
static int core_copy_to(lua_State *L) {
    bind_poll(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "to");
    mg_device *d = lua_isnoneornil(L, 2) ? t->device : mg_device_find(luaL_checkstring(L, 2));
    if (!d) return bind_raise(L);
    if (mg_trace_current()) {
        if (d != t->device)
            bind_fail(L, MG_USAGE,
                      "to: inside mgpu.jit (or fit) nothing is moved from %s to %s: give layers a "
                      "device, as in L.Dense {10, device = \"%s\"}, or move the tensor before",
                      t->device->name, d->name, d->name);
        *bind_new_tensor(L) = mg_tensor_retain(t);
        return 1;
    }
    bind_eval(L, &t, 1);
    bind_account(L, mg_tensor_bytes(t));
    bind_eval(L, push_placed(L, t, d), 1);
    return 1;
}

/* place(t, device): t where it is, or brought to the device; gradients flow back. */
static int core_place(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "place");
    mg_device *d = mg_device_find(luaL_checkstring(L, 2));
    if (!d) return bind_raise(L);
    d = mg_trace_device(d);
    if (t->device == d && !t->any_device) {
        lua_settop(L, 1);
        return 1;
    }
    push_placed(L, t, d);
    return 1;
}

/* The address of the evaluated elements in host memory. */
static int core_address(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "pointer");
    refuse_in_trace(L, "pointer");
    bind_eval(L, &t, 1);
    if (!mg_device_kind_is_host_visible(t->device->api))
        return bind_fail(L, MG_USAGE, "pointer: the tensor lies on %s: move it with :to \"cpu\"",
                         t->device->name);
    lua_pushlightuserdata(L, t->buffer->data);
    return 1;
}

/* dtype_name(name) -> Keras's spelling of it; nil if there is no such dtype. */
static int core_dtype_name(lua_State *L) {
    const int t = lua_type(L, 1) == LUA_TSTRING ? mg_dtype_from_name(lua_tostring(L, 1)) : -1;
    if (t < 0) return 0;
    lua_pushstring(L, mg_dtype_name((mg_dtype)t));
    return 1;
}

static int core_floatx(lua_State *L) {
    const int t = dtype_option(L, 1, "set_floatx");
    if (t >= 0 && !mg_dtype_is_float((mg_dtype)t))
        return bind_fail(L, MG_USAGE, "set_floatx: %s is not a floating point dtype",
                         mg_dtype_name((mg_dtype)t));
    if (t >= 0) floatx = (mg_dtype)t;
    lua_pushstring(L, mg_dtype_name(floatx));
    return 1;
}

/* producer(t) -> the op's name and its axis from 1, if it has one; nil if t has no history. */
static int core_producer(lua_State *L) {
    const mg_tensor *t = bind_to_tensor(L, 1);
    if (!t || t->kind != MG_LAZY || !t->op) return 0;
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

static int core_producer_input(lua_State *L) {
    const mg_tensor *t = bind_to_tensor(L, 1);
    const int i = (int)luaL_checkinteger(L, 2);
    if (!t || t->kind != MG_LAZY || i < 1 || i > t->n_inputs) return 0;
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_tensor_retain(t->inputs[i - 1]));
    return 1;
}

static int core_is_tensor(lua_State *L) {
    lua_pushboolean(L, test_userdata(L, 1, BIND_TENSOR) != NULL);
    return 1;
}

/* ---- metatable ---- */

/* A number asks lua/mgpu/tensor/init.lua's `entry`; anything else is a method. */
static int tensor_index(lua_State *L) {
    if (lua_type(L, 2) == LUA_TNUMBER) {
        lua_getfield(L, lua_upvalueindex(1), "entry");
        lua_insert(L, 1);
        lua_call(L, 2, 1);
        return 1;
    }
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    if (lua_type(L, 2) != LUA_TSTRING)
        return bind_fail(L, MG_USAGE,
                         "a tensor is indexed with one position, as in t[2], got a %s: use :slice "
                         "for ranges, :gather for a tensor of ids and :where for a mask",
                         bind_to_tensor(L, 2) ? "tensor" : luaL_typename(L, 2));
    if (lua_isnil(L, -1)) {
        const char *names[256];
        int n = 0;
        for (lua_pushnil(L); lua_next(L, lua_upvalueindex(1)) && n < 256; lua_pop(L, 1))
            names[n++] = lua_tostring(L, -2);
        const char *near = mg_nearest_name(lua_tostring(L, 2), names, n);
        return bind_fail(L, MG_USAGE, "a tensor has no method \"%s\"%s%s%s", lua_tostring(L, 2),
                         near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
    }
    return 1;
}

static int tensor_newindex(lua_State *L) {
    return bind_fail(L, MG_USAGE,
                     "tensors are values and cannot be changed: make a new one with "
                     ":where, concat or + (a variable is changed with :assign)");
}

static int tensor_compare(lua_State *L) {
    return bind_fail(L, MG_USAGE,
                     "tensors are not ordered with < or <=: use :lt, :le, :gt or :ge, "
                     "element by element");
}

/* print shows what lua/mgpu/tensor/init.lua's `text` makes. */
static int tensor_text(lua_State *L) {
    lua_settop(L, 1);
    lua_getfield(L, lua_upvalueindex(1), "text");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* Lua passes the operand of a unary minus twice. */
static int tensor_negate(lua_State *L) {
    lua_settop(L, 1);
    lua_getfield(L, lua_upvalueindex(1), "neg");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

void bind_open_tensor(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"item", tensor_item},   {"totable", tensor_totable}, {"shape", tensor_shape},
        {"dtype", tensor_dtype}, {"device", tensor_device},   {"rank", tensor_rank},
        {"count", tensor_count}, {"free", tensor_free},       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", tensor_gc},      {"__newindex", tensor_newindex},
                                    {"__lt", tensor_compare}, {"__le", tensor_compare},
                                    {"__len", tensor_len},    {NULL, NULL}};
    static const char *const operators[][2] = {{"__add", "add"}, {"__sub", "sub"},
                                               {"__mul", "mul"}, {"__div", "div"},
                                               {"__mod", "mod"}, {"__pow", "pow"}};
    static const char *const kinds[] = {BIND_TENSOR, BIND_VARIABLE};
    bind_register(L, methods);
    for (int k = 0; k < 2; k++) {
        luaL_newmetatable(L, kinds[k]);
        luaL_getmetatable(L, kinds[0]); /* the same functions: Lua compares only by common ones */
        for (const luaL_Reg *m = meta; m->name; m++) {
            if (k == 0)
                lua_pushcfunction(L, m->func);
            else
                lua_getfield(L, -1, m->name);
            lua_setfield(L, -3, m->name);
        }
        lua_pop(L, 1);
        for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
            lua_getfield(L, -2, operators[i][1]);
            lua_setfield(L, -2, operators[i][0]);
        }
        lua_pushvalue(L, -2);
        lua_pushcclosure(L, tensor_index, 1);
        lua_setfield(L, -2, "__index");
        lua_pushvalue(L, -2);
        lua_pushcclosure(L, tensor_negate, 1);
        lua_setfield(L, -2, "__unm");
        lua_pushvalue(L, -2);
        lua_pushcclosure(L, tensor_text, 1);
        lua_setfield(L, -2, "__tostring");
        lua_pop(L, 1);
    }
}

const luaL_Reg mg_bind_tensor[] = {{"tensor", core_tensor},
                                   {"eval", core_eval},
                                   {"copy_to", core_copy_to},
                                   {"place", core_place},
                                   {"address", core_address},
                                   {"floatx", core_floatx},
                                   {"producer", core_producer},
                                   {"producer_input", core_producer_input},
                                   {"is_tensor", core_is_tensor},
                                   {"dtype_name", core_dtype_name},
                                   {NULL, NULL}};
