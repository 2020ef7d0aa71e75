/* Arrays, and nested tables of numbers that become tensors.
 *
 * Lua's length operator may stop at any hole and does not see named fields, so relying on it would
 * silently lose data. Every key of a table is looked at, and one that is not a position 1..n is an
 * error that says where it is. */
#include "bind/bind.h"
#include "device/buffer.h"
#include <stdio.h>

/* A nested table being read into an array of numbers. */
typedef struct table_reader {
    lua_State *L;
    const char *who;
    mg_shape shape;
    int64_t at[MG_MAX_RANK]; /* positions, from 1, of the table being read */
    double *values;          /* in a userdata on the stack */
    int64_t n;               /* values read so far */
    bool all_boolean;
} table_reader;

/* ---- arrays ---- */

/* Whether the key at index is a whole number from 1 to n. */
static bool is_position(lua_State *L, int index, int64_t n) {
    if (lua_type(L, index) != LUA_TNUMBER) return false;
    const double k = lua_tonumber(L, index);
    return k >= 1 && k <= (double)n && k == (double)(int64_t)k;
}

/* Writes what is wrong with the array at index. On top of the stack is a key that is not a
 * position, or nil: then one of the first n entries is missing. */
static void describe_fault(lua_State *L, int index, char *fault, size_t size) {
    int hole = 1; /* the first missing position */
    if (lua_type(L, -1) == LUA_TSTRING) {
        snprintf(fault, size,
                 "the name \"%s\" stands in an array, which has only entries 1, 2, ...",
                 lua_tostring(L, -1));
        return;
    }
    if (!lua_isnil(L, -1) && !is_position(L, -1, INT64_MAX)) {
        char key[40];
        snprintf(key, sizeof key, "%.14g", lua_tonumber(L, -1));
        snprintf(fault, size, "the key %s stands in an array, which has only entries 1, 2, ...",
                 lua_type(L, -1) == LUA_TNUMBER ? key : luaL_typename(L, -1));
        return;
    }
    for (;; hole++) {
        lua_rawgeti(L, index, hole);
        const bool missing = lua_isnil(L, -1);
        lua_pop(L, 1);
        if (missing) break;
    }
    snprintf(fault, size, "entry %d is missing: an array has no holes", hole);
}

/* One walk over all keys: each must be a position up to lua_objlen, and there must be as many.
 *
 * Then there are no holes. */
int64_t bind_array_length(lua_State *L, int index, char *fault, size_t size) {
    const int64_t n = (int64_t)lua_objlen(L, index);
    int64_t found = 0;
    luaL_checkstack(L, 4, "arrays");
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1), found++) {
        if (is_position(L, -2, n)) continue;
        lua_pop(L, 1);
        describe_fault(L, index, fault, size);
        lua_pop(L, 1);
        return -1;
    }
    if (found == n) return n;
    lua_pushnil(L);
    describe_fault(L, index, fault, size);
    lua_pop(L, 1);
    return -1;
}

/* array_fault(t) -> what is wrong with t as an array, or nil. */
static int core_array_fault(lua_State *L) {
    char fault[200];
    luaL_checktype(L, 1, LUA_TTABLE);
    if (bind_array_length(L, 1, fault, sizeof fault) >= 0) return 0;
    lua_pushstring(L, fault);
    return 1;
}

/* ---- nested tables ---- */

/* The shape, from the first entry of each level; read_values checks that all others agree. */
static void read_shape(table_reader *r, int index) {
    lua_State *L = r->L;
    lua_pushvalue(L, index);
    while (lua_istable(L, -1)) {
        if (r->shape.rank == MG_MAX_RANK)
            bind_fail(L, MG_USAGE, "%s: tables nest deeper than %d", r->who, MG_MAX_RANK);
        r->shape.dim[r->shape.rank++] = (int64_t)lua_objlen(L, -1);
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_pop(L, 1);
}

/* Writes the position of the table being read: "" or "in [2][1], ". */
static void print_position(const table_reader *r, int depth, char *to, size_t size) {
    size_t n = 0;
    to[0] = 0;
    for (int i = 0; i < depth && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s[%lld]%s", i ? "" : "in ", (long long)r->at[i],
                              i == depth - 1 ? ", " : "");
}

/* One number or boolean, on top of the stack. */
static void read_leaf(table_reader *r) {
    lua_State *L = r->L;
    if (lua_isboolean(L, -1)) {
        r->values[r->n++] = lua_toboolean(L, -1);
        return;
    }
    if (lua_type(L, -1) != LUA_TNUMBER)
        bind_fail(L, MG_USAGE, "%s: element %d is a %s, not a number", r->who, (int)r->n + 1,
                  luaL_typename(L, -1));
    r->all_boolean = false;
    r->values[r->n++] = lua_tonumber(L, -1);
}

/* The table at index, `depth` levels down. */
static void read_values(table_reader *r, int index, int depth) {
    lua_State *L = r->L;
    const int64_t size = r->shape.dim[depth];
    char fault[200], way[200];
    luaL_checkstack(L, 3, "nested tables");
    const int64_t n = lua_istable(L, index) ? bind_array_length(L, index, fault, sizeof fault) : 0;
    if (n < 0) {
        print_position(r, depth, way, sizeof way);
        bind_fail(L, MG_USAGE, "%s: %s%s", r->who, way, fault);
    }
    if (!lua_istable(L, index) || n != size)
        bind_fail(L, MG_USAGE, "%s: the nested tables are ragged: expected %d entries on axis %d",
                  r->who, (int)size, depth + 1);
    for (int64_t i = 1; i <= size; i++) {
        r->at[depth] = i;
        lua_rawgeti(L, index, (int)i);
        if (depth + 1 < r->shape.rank)
            read_values(r, lua_gettop(L), depth + 1);
        else
            read_leaf(r);
        lua_pop(L, 1);
    }
}

/* Raises for the symbolic output of a layer (from mgpu.Input or L.Dense {...} (x)): it has no
 * values, and its __tostring says what it is. */
static void refuse_layer_output(lua_State *L, int index, const char *who) {
    if (lua_objlen(L, index) > 0 || !luaL_callmeta(L, index, "__tostring")) return;
    bind_fail(L, MG_USAGE,
              "%s: expected a tensor, got %s, which has no values: compute in a layer, as in "
              "L.Lambda { function(t) ... end } (x)",
              who, lua_isstring(L, -1) ? lua_tostring(L, -1) : "a table");
}

/* Numbers are read as doubles and converted to the dtype in one go.
 *
 * All temporary memory is userdata on the stack, popped at the end. */
mg_tensor *bind_from_table(lua_State *L, int index, int dtype, mg_device *device, const char *who) {
    table_reader r = {.L = L, .who = who, .all_boolean = true};
    refuse_layer_output(L, index, who);
    read_shape(&r, index);
    bind_check(L, mg_shape_check(&r.shape, who));
    const size_t n = (size_t)mg_shape_count(&r.shape);
    mg_tensor **place = bind_new_tensor(L);
    r.values = lua_newuserdata(L, (n + 1) * sizeof(double));
    read_values(&r, index, 0);
    /* an empty table gives floatx, not bool */
    if (dtype < 0) dtype = r.all_boolean && n ? MG_BOOL : (int)bind_floatx();
    bind_account(L, n * mg_dtype_size((mg_dtype)dtype));
    void *raw = lua_newuserdata(L, n * 8 + 1);
    mg_from_double(raw, r.values, (mg_dtype)dtype, n);
    bind_fill(L, place, mg_tensor_from_host(raw, (mg_dtype)dtype, &r.shape, device));
    lua_pop(L, 2);
    return *place;
}

const luaL_Reg mg_bind_nested[] = {{"array_fault", core_array_fault}, {NULL, NULL}};
