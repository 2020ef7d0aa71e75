/* One Lua function for each op, derived from its row in the op table: t:sum(2), mgpu.concat({a, b},
 * 1), t:reshape {2, 3}.
 *
 * Arguments: first the inputs, then the options, as one table of names ({axis = 2, keepdims =
 * true}) or by position in the order of the attributes. A table without names is the value of the
 * attribute at its position. Axes count from 1, or from the end if negative; C counts from 0. */
#include "bind/bind.h"
#include "core/context.h"
#include "device/device.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include <math.h>
#include <string.h>

enum { MAX_INPUTS = 255 };

/* A call in progress; its tensors are borrowed from the Lua stack. */
typedef struct op_call {
    lua_State *L;
    const mg_op *op;
    mg_tensor *inputs[MAX_INPUTS];
    int n_inputs;
    int next;    /* the stack index after the inputs */
    char *attrs; /* the op's attribute struct, being filled */
} op_call;

/* ---- inputs ---- */

/* Whether the value can become a tensor. */
static bool is_operand(lua_State *L, int index) {
    const int type = lua_type(L, index);
    return type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TTABLE ||
           bind_to_tensor(L, index) || bind_to_variable(L, index);
}

/* The last of the first n arguments that is a tensor or variable; numbers beside it adopt its
 * dtype. The last, because the first operand of `where` is a condition. */
static const mg_tensor *dtype_model(op_call *c, int n) {
    for (int i = n; i > 0; i--) {
        const mg_tensor *t = bind_to_tensor(c->L, i);
        if (!t && bind_to_variable(c->L, i)) t = bind_take_tensor(c->L, i, NULL, c->op->name);
        if (t) return t;
    }
    return NULL;
}

/* The inputs of an op with a fixed number of them. */
static void take_fixed_inputs(op_call *c) {
    lua_State *L = c->L;
    const int n = c->op->min_inputs, given = lua_gettop(L);
    for (int i = 1; i <= n; i++)
        if (i > given || !is_operand(L, i))
            bind_fail(L, MG_USAGE, "%s: takes %d tensor%s; argument %d is %s", c->op->name, n,
                      n == 1 ? "" : "s", i, i > given ? "missing" : luaL_typename(L, i));
    const mg_tensor *like = dtype_model(c, n); /* NULL: only numbers and tables */
    for (int i = 1; i <= n; i++) c->inputs[i - 1] = bind_take_tensor(L, i, like, c->op->name);
    c->n_inputs = n;
    c->next = n + 1;
}

/* The inputs of an op with any number of them: tensors one after another, or one array of them,
 * which is unpacked on the stack. */
static void take_many_inputs(op_call *c) {
    lua_State *L = c->L;
    if (lua_istable(L, 1)) { /* unpack the array in place */
        char fault[200];
        const int n = (int)bind_array_length(L, 1, fault, sizeof fault);
        if (n < 0)
            bind_fail(L, MG_USAGE, "%s: %s; options come after the array", c->op->name, fault);
        if (n == 0) bind_fail(L, MG_USAGE, "%s: the array of tensors is empty", c->op->name);
        if (n > MAX_INPUTS)
            bind_fail(L, MG_USAGE, "%s: the array must hold at most %d tensors, got %d",
                      c->op->name, MAX_INPUTS, n);
        luaL_checkstack(L, n + 8, c->op->name);
        for (int i = 1; i <= n; i++) {
            lua_rawgeti(L, 1, i);
            lua_insert(L, 1 + i);
        }
        lua_remove(L, 1);
        c->next = n + 1;
    } else {
        c->next = 1;
        while (bind_to_tensor(L, c->next) || bind_to_variable(L, c->next)) c->next++;
    }
    c->n_inputs = c->next - 1;
    if (c->n_inputs == 0) bind_fail(L, MG_USAGE, "%s: takes tensors, got none", c->op->name);
    if (c->n_inputs > MAX_INPUTS)
        bind_fail(L, MG_USAGE, "%s: at most %d tensors can be given, got %d", c->op->name,
                  MAX_INPUTS, c->n_inputs);
    const mg_tensor *like = dtype_model(c, c->n_inputs);
    for (int i = 1; i <= c->n_inputs; i++)
        c->inputs[i - 1] = bind_take_tensor(L, i, like, c->op->name);
}

/* ---- attributes: each function reads the value on top of the stack ---- */

/* Raises for a value of the wrong Lua type. */
static void fail_wrong_type(op_call *c, const mg_attr *a, const char *wanted) {
    bind_fail(c->L, MG_USAGE, "%s: option \"%s\" must be %s, got %s", c->op->name, a->name, wanted,
              luaL_typename(c->L, -1));
}

/* A whole number that a double holds exactly. */
static int64_t read_integer(op_call *c, const mg_attr *a) {
    if (lua_type(c->L, -1) != LUA_TNUMBER) fail_wrong_type(c, a, "an integer");
    const double v = lua_tonumber(c->L, -1);
    if (v != floor(v) || fabs(v) > 9e15)
        bind_fail(c->L, MG_USAGE, "%s: option \"%s\" must be an integer, got %.14g", c->op->name,
                  a->name, v);
    return (int64_t)v;
}

/* A 1-based axis as a 0-based one; a negative one stays and counts from the end. */
static int64_t read_axis(op_call *c, const mg_attr *a) {
    const int64_t axis = read_integer(c, a);
    if (axis == 0)
        bind_fail(c->L, MG_USAGE,
                  "%s: option \"%s\": axes count from 1 (or -1 from the end), got 0", c->op->name,
                  a->name);
    return axis > 0 ? axis - 1 : axis;
}

/* A list of integers or axes; a single number is a list of one. */
static mg_ints read_list(op_call *c, const mg_attr *a) {
    lua_State *L = c->L;
    mg_ints list = {0};
    const bool axes = a->type == MG_ATTR_AXES;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        list.n = 1;
        list.v[0] = axes ? read_axis(c, a) : read_integer(c, a);
        return list;
    }
    if (!lua_istable(L, -1)) fail_wrong_type(c, a, "a list of integers");
    char fault[200];
    const int n = (int)bind_array_length(L, lua_gettop(L), fault, sizeof fault);
    if (n < 0) bind_fail(L, MG_USAGE, "%s: option \"%s\": %s", c->op->name, a->name, fault);
    if (n > MG_MAX_RANK)
        bind_fail(L, MG_USAGE, "%s: option \"%s\" has %d entries, at most %d are allowed",
                  c->op->name, a->name, n, MG_MAX_RANK);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        list.v[list.n++] = axes ? read_axis(c, a) : read_integer(c, a);
        lua_pop(L, 1);
    }
    return list;
}

/* A name, as its index in the attribute's choices. */
static int64_t read_choice(op_call *c, const mg_attr *a) {
    if (lua_type(c->L, -1) != LUA_TSTRING) fail_wrong_type(c, a, "a name");
    const char *given = lua_tostring(c->L, -1);
    int n = 0;
    for (; a->choices[n]; n++)
        if (strcmp(a->choices[n], given) == 0) return n;
    return bind_fail(c->L, MG_USAGE, "%s: option \"%s\": unknown value \"%s\"%s", c->op->name,
                     a->name, given, mg_name_hint(given, a->choices, n, "value"));
}

/* A dtype by name. */
static int64_t read_dtype(op_call *c, const mg_attr *a) {
    if (lua_type(c->L, -1) != LUA_TSTRING) fail_wrong_type(c, a, "the name of a dtype");
    return bind_dtype_option(c->L, -1, c->op->name);
}

/* A device by name, as the address of its mg_device. */
static int64_t read_device(op_call *c, const mg_attr *a) {
    if (lua_type(c->L, -1) != LUA_TSTRING) fail_wrong_type(c, a, "the name of a device");
    mg_device *d = mg_device_find(lua_tostring(c->L, -1));
    if (!d) bind_raise(c->L);
    return (int64_t)(intptr_t)d;
}

/* Stores the value in the attribute struct, by the attribute's type. */
static void read_attr(op_call *c, const mg_attr *a) {
    void *at = c->attrs + a->offset;
    switch (a->type) {
    case MG_ATTR_INT: *(int64_t *)at = read_integer(c, a); break;
    case MG_ATTR_AXIS: *(int64_t *)at = read_axis(c, a); break;
    case MG_ATTR_CHOICE: *(int64_t *)at = read_choice(c, a); break;
    case MG_ATTR_DTYPE: *(int64_t *)at = read_dtype(c, a); break;
    case MG_ATTR_DEVICE: *(int64_t *)at = read_device(c, a); break;
    case MG_ATTR_BOOL:
        if (!lua_isboolean(c->L, -1)) fail_wrong_type(c, a, "true or false");
        *(int64_t *)at = lua_toboolean(c->L, -1);
        break;
    case MG_ATTR_NUMBER:
        if (lua_type(c->L, -1) != LUA_TNUMBER) fail_wrong_type(c, a, "a number");
        *(double *)at = lua_tonumber(c->L, -1);
        break;
    case MG_ATTR_INTS:
    case MG_ATTR_SHAPE:
    case MG_ATTR_AXES: *(mg_ints *)at = read_list(c, a); break;
    }
}

/* The attribute of that name, or NULL. */
static const mg_attr *find_attr(const mg_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

/* Our names for two common options of PyTorch. */
static const char *own_name(const char *name) {
    if (strcmp(name, "dim") == 0) return "axis";
    if (strcmp(name, "keepdim") == 0) return "keepdims";
    return name;
}

/* Raises for an unknown option name; the message suggests the nearest known name and lists all. */
static void fail_unknown_option(op_call *c, const char *name) {
    const char *names[16];
    int n = 0;
    for (; n < c->op->n_attrs && n < 16; n++) names[n] = c->op->attrs[n].name;
    bind_fail(c->L, MG_USAGE, "%s: unknown option \"%s\"%s", c->op->name, name,
              mg_name_hint(own_name(name), names, n, "option"));
}

/* Whether the table at index has a string key. */
static bool has_names(lua_State *L, int index) {
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING) return lua_pop(L, 2), true;
    return false;
}

/* Options by name, from the table at index. */
static void read_named_attrs(op_call *c, int index) {
    lua_State *L = c->L;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            bind_fail(L, MG_USAGE,
                      "%s: the options have names, but one value has none: write NAME = value",
                      c->op->name);
        const mg_attr *a = find_attr(c->op, lua_tostring(L, -2));
        if (!a) fail_unknown_option(c, lua_tostring(L, -2));
        read_attr(c, a);
    }
}

/* An empty table stands for no options, unless the first attribute is a shape: reshape {} makes a
 * scalar. */
static bool is_empty_options(const op_call *c, int index) {
    if (!lua_istable(c->L, index) || lua_objlen(c->L, index) > 0) return false;
    const mg_attr_type t = c->op->n_attrs ? c->op->attrs[0].type : MG_ATTR_INT;
    return t != MG_ATTR_SHAPE;
}

/* All attributes of the call: defaults, then a table of names or values by position. */
static void read_attrs(op_call *c) {
    lua_State *L = c->L;
    const int last = lua_gettop(L);
    mg_op_default_attrs(c->op, c->attrs);
    if (last == c->next && lua_istable(L, c->next)) { /* a single table may hold names */
        if (has_names(L, c->next)) {
            read_named_attrs(c, c->next);
            return;
        }
        if (is_empty_options(c, c->next)) return;
    }
    for (int i = c->next; i <= last; i++) { /* by position; nil keeps the default */
        if (lua_isnil(L, i)) continue;
        if (i - c->next >= c->op->n_attrs)
            bind_fail(L, MG_USAGE, "%s: too many arguments: takes %d tensor%s and %d option%s",
                      c->op->name, c->n_inputs, c->n_inputs == 1 ? "" : "s", c->op->n_attrs,
                      c->op->n_attrs == 1 ? "" : "s");
        lua_pushvalue(L, i);
        read_attr(c, &c->op->attrs[i - c->next]);
        lua_pop(L, 1);
    }
}

/* ---- the call, and the table of ops ---- */

void bind_push_result(lua_State *L, mg_tensor *of, int k) {
    const mg_result_attrs attrs = {.number = k};
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("result"), &of, 1, &attrs));
}

/* Pushes all results of the tensor on top of the stack, which belongs to an op that has several.
 * Returns their number. */
static int push_results(lua_State *L, mg_tensor *of) {
    const int n = mg_result_count(of);
    luaL_checkstack(L, n + 4, of->op->name);
    for (int k = 0; k < n; k++) bind_push_result(L, of, k);
    return n;
}

/* Every op's Lua function; the row of the op table is upvalue 1.
 *
 * mg_apply checks shapes and dtypes, so errors come at the user's line, and computes nothing.
 * mg_eval_pending evaluates every 2,000th tensor, so that the history of a loop that never reads a
 * value stays bounded. */
static int call_op(lua_State *L) {
    op_call c = {.L = L, .op = lua_touserdata(L, lua_upvalueindex(1)), .next = 1};
    union { /* aligned room for any attribute struct */
        double align;
        char bytes[1024];
    } attrs;
    bind_poll(L);
    bind_note_line(L);
    if (c.op->max_inputs == 255)
        take_many_inputs(&c);
    else if (c.op->min_inputs)
        take_fixed_inputs(&c);
    if (c.op->attrs_size > sizeof attrs)
        return bind_fail(L, MG_INTERNAL, "%s: the attribute struct is larger than the room for it",
                         c.op->name);
    memset(&attrs, 0, c.op->attrs_size);
    c.attrs = attrs.bytes;
    read_attrs(&c);
    mg_tensor **place = bind_new_tensor(L); /* before anything is owned */
    bind_fill(L, place,
              mg_apply(c.op, c.inputs, c.n_inputs, c.op->attrs_size ? attrs.bytes : NULL));
    const int n = c.op->n_results ? push_results(L, *place) : 1;
    mg_context_get()->origin.where = NULL;
    mg_status status = mg_eval_pending(n ? bind_to_tensor(L, -1) : *place);
    if (status != MG_OK) return bind_raise(L);
    return n;
}

/* For the visible ops it is the table of tensor methods, so `t:name` needs no further wrapper. */
void bind_open_ops(lua_State *L, bool hidden) {
    for (int i = 0; i < mg_op_count(); i++) {
        const mg_op *op = mg_op_at(i);
        if ((op->flags & MG_OP_INTERNAL) || ((op->flags & MG_OP_HIDDEN) && !hidden)) continue;
        /* a light userdata: rows are constants of the library */
        lua_pushlightuserdata(L, (void *)(uintptr_t)op);
        lua_pushcclosure(L, call_op, 1);
        lua_setfield(L, -2, op->name);
    }
}

/* op_rows() -> array of {name, doc, example, inputs (-1: any number), hidden, differentiable,
 * elementwise, attrs}, for help texts, the manual and tests. */
int bind_op_rows(lua_State *L) {
    int n = 0;
    lua_createtable(L, mg_op_count(), 0);
    for (int i = 0; i < mg_op_count(); i++) {
        const mg_op *op = mg_op_at(i);
        if (op->flags & MG_OP_INTERNAL) continue;
        lua_newtable(L);
        lua_pushstring(L, op->name), lua_setfield(L, -2, "name");
        lua_pushstring(L, op->doc), lua_setfield(L, -2, "doc");
        lua_pushstring(L, op->example), lua_setfield(L, -2, "example");
        lua_pushinteger(L, op->max_inputs == 255 ? -1 : op->min_inputs),
            lua_setfield(L, -2, "inputs");
        lua_pushboolean(L, op->flags & MG_OP_HIDDEN), lua_setfield(L, -2, "hidden");
        lua_pushboolean(L, op->grad || op->grad_many), lua_setfield(L, -2, "differentiable");
        lua_pushboolean(L, op->elementwise != 0), lua_setfield(L, -2, "elementwise");
        lua_newtable(L);
        for (int k = 0; k < op->n_attrs; k++) {
            lua_newtable(L);
            lua_pushstring(L, op->attrs[k].name), lua_setfield(L, -2, "name");
            lua_pushstring(L, op->attrs[k].doc), lua_setfield(L, -2, "doc");
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "attrs");
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}
