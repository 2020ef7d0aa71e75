/* Methods and metatable of tensors: reading values, shape and dtype, moving between devices,
 * operators.
 *
 * Variables share the metamethods and fall back to the same methods, so a variable can be used
 * where a tensor can; for that, methods take their first argument with bind_take_tensor. Methods
 * that are ops are made in ops.c, and some are written in Lua (lua/mgpu/tensor/init.lua); all of
 * them are in one table. */
#include "bind/bind.h"
#include "device/device.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include <string.h>

/* Called by the garbage collector. */
static int tensor_gc(lua_State *L) {
    mg_tensor **place = luaL_checkudata(L, 1, BIND_TENSOR);
    mg_tensor_release(*place);
    *place = NULL;
    return 0;
}

/* ---- to Lua values ---- */

/* Elements of bool tensors are booleans in Lua. */
static void push_number(lua_State *L, mg_dtype t, double v) {
    if (t == MG_BOOL)
        lua_pushboolean(L, v != 0);
    else
        lua_pushnumber(L, v);
}

/* Raises inside a trace, where tensors have no values. */
static void refuse_in_trace(lua_State *L, const char *who) {
    if (mg_trace_current())
        bind_fail(L, MG_USAGE,
                  "%s: not available inside mgpu.jit: the function is only being traced; "
                  "return the tensor and read it outside",
                  who);
}

/* Evaluates t and pushes a userdata with its elements as doubles; borrowed from there. */
static double *read_values(lua_State *L, mg_tensor *t) {
    const size_t n = (size_t)mg_tensor_count(t);
    bind_eval(L, &t, 1);
    double *values = lua_newuserdata(L, (n + 1) * sizeof *values);
    bind_check(L, mg_tensor_read_double(t, values));
    return values;
}

/* t:item() -> the one element as a number or boolean. */
static int tensor_item(lua_State *L) {
    bind_poll(L);
    bind_visit(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "item");
    refuse_in_trace(L, "item");
    if (mg_tensor_count(t) != 1)
        return bind_fail(L, MG_USAGE,
                         "item: the tensor has %lld elements (shape %s), not one: use "
                         ":totable()",
                         (long long)mg_tensor_count(t), MG_SHAPE_TEXT(&t->shape));
    push_number(L, (mg_dtype)t->dtype, read_values(L, t)[0]);
    return 1;
}

/* Pushes axes depth.. as nested tables of the elements at v; returns the element after them. */
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

/* t:totable() -> nested tables; a number for a scalar. */
static int tensor_totable(lua_State *L) {
    bind_poll(L);
    bind_visit(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "totable");
    refuse_in_trace(L, "totable");
    push_nested(L, t, 0, read_values(L, t));
    return 1;
}

/* ---- queries: t:shape() -> {2, 3}, t:dtype(), t:device(), t:rank(), t:count(), #t ---- */

/* Like all queries, it reads the lazy tensor and computes nothing. */
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

/* #t: the number of rows. */
static int tensor_len(lua_State *L) {
    const mg_tensor *t = bind_take_tensor(L, 1, NULL, "#");
    if (t->shape.rank == 0)
        return bind_fail(L, MG_USAGE, "#: a tensor of one number has no length");
    lua_pushnumber(L, (double)t->shape.dim[0]);
    return 1;
}

/* t:free(): frees the memory now; any later use raises an error. */
static int tensor_free(lua_State *L) {
    if (!bind_to_tensor(L, 1))
        return bind_fail(L, MG_USAGE, "free: the argument must be a tensor, got %s",
                         lua_isnone(L, 1) ? "nothing" : luaL_typename(L, 1));
    mg_tensor **place = luaL_checkudata(L, 1, BIND_TENSOR);
    bind_free_tensor(*place);
    *place = NULL;
    return 0;
}

/* ---- devices and memory ---- */

/* Pushes t on device d, as a lazy `place` op; gradients flow back through it. */
static mg_tensor **push_placed(lua_State *L, mg_tensor *t, mg_device *d) {
    const mg_place_attrs attrs = {.device = (int64_t)(intptr_t)d};
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("place"), &t, 1, &attrs));
    return place;
}

/* copy_to(t, [device]) -> a copy, made now: the method :to, and :clone without a device.
 *
 * Inside a trace nothing is copied. A plan never writes to its inputs, so a copy would be useless,
 * and the layers decide which device computes what. */
static int core_copy_to(lua_State *L) {
    bind_poll(L);
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "to");
    mg_device *d = lua_isnoneornil(L, 2) ? t->device : bind_device(L, luaL_checkstring(L, 2));
    if (t->in_loop && d != t->device)
        bind_fail(L, MG_USAGE,
                  "to: inside the function of mgpu.scan nothing is moved from %s to %s: move it "
                  "before, and pass it in xs or in the carry",
                  t->device->name, d->name);
    if (mg_trace_current() || t->in_loop) {
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

/* place(t, device) -> t itself if it lies there, else t placed there lazily.
 *
 * In a trace, mg_trace_device gives the device that stands for it. */
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

/* address(t) -> light userdata: the elements in host memory, valid as long as t. For LuaJIT's FFI.
 */
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

/* t[i] calls the Lua function `entry`; t.name is a method. Upvalue 1: the table of methods.
 *
 * An unknown name is an error, raised by the Lua function `unknown`, and not nil as usual in Lua,
 * so that misspelt calls are reported. */
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
        lua_getfield(L, lua_upvalueindex(1), "unknown");
        lua_insert(L, 1);
        lua_settop(L, 3);
        lua_call(L, 2, 0); /* raises */
    }
    return 1;
}

/* t[i] = v, and t.name = v. */
static int tensor_newindex(lua_State *L) {
    return bind_fail(L, MG_USAGE,
                     "tensors are values and cannot be changed: make a new one with "
                     ":where, concat or + (a variable is changed with :assign)");
}

/* t < u, t <= u: Lua would turn the result into one boolean. (t == u compares identity.) */
static int tensor_compare(lua_State *L) {
    return bind_fail(L, MG_USAGE,
                     "tensors are not ordered with < or <=: use :lt, :le, :gt or :ge, "
                     "element by element");
}

/* "loss: " .. t: Lua would say that a userdata value cannot be concatenated. */
static int tensor_concat(lua_State *L) {
    return bind_fail(L, MG_USAGE,
                     "a tensor cannot be concatenated with ..: write t:item() for its number, or "
                     "tostring(t)");
}

/* tostring and print call the Lua function `text`. */
static int tensor_text(lua_State *L) {
    lua_settop(L, 1);
    lua_getfield(L, lua_upvalueindex(1), "text");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* -t. Lua passes the operand twice: the second is dropped, since `neg` would take it for an option.
 */
static int tensor_negate(lua_State *L) {
    lua_settop(L, 1);
    lua_getfield(L, lua_upvalueindex(1), "neg");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* Makes the metatables of tensors and variables from the table of methods on top of the stack,
 * which gets the methods above. Ops serve as arithmetic metamethods. */
void bind_open_tensor(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"item", tensor_item},   {"totable", tensor_totable}, {"shape", tensor_shape},
        {"dtype", tensor_dtype}, {"device", tensor_device},   {"rank", tensor_rank},
        {"count", tensor_count}, {"free", tensor_free},       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", tensor_gc},
                                    {"__newindex", tensor_newindex},
                                    {"__lt", tensor_compare},
                                    {"__le", tensor_compare},
                                    {"__len", tensor_len},
                                    {"__concat", tensor_concat},
                                    {NULL, NULL}};
    static const char *const operators[][2] = {{"__add", "add"}, {"__sub", "sub"},
                                               {"__mul", "mul"}, {"__div", "div"},
                                               {"__mod", "mod"}, {"__pow", "pow"}};
    static const char *const kinds[] = {BIND_TENSOR, BIND_VARIABLE};
    bind_register(L, methods);
    for (int k = 0; k < 2; k++) { /* stack: methods, metatable */
        luaL_newmetatable(L, kinds[k]);
        luaL_getmetatable(L, kinds[0]); /* the same functions: Lua 5.1 calls __lt and __le
                                           only if both operands have the same one */
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
