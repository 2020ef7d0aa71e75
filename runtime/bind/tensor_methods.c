/* The methods and the metatable of tensors in Lua. */
#include "bind/bind.h"
#include "device/device.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include <string.h>

static int tensor_gc(lua_State *L) {
    mg_tensor **place = lua_touserdata(L, 1);
    mg_tensor_release(*place);
    *place = NULL;
    return 0;
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

/* ---- devices and memory ---- */

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
        const char *name = lua_tostring(L, 2);
        return bind_fail(L, MG_USAGE, "a tensor has no method \"%s\"%s", name,
                         bind_did_you_mean(L, name, names, n));
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

const luaL_Reg mg_bind_tensor_methods[] = {
    {"copy_to", core_copy_to}, {"place", core_place}, {"address", core_address}, {NULL, NULL}};
