/* The C part of lua/mgpu/data/flow, whose operators work on the elements of data sets as Lua
 * values. */
#include "bind/bind.h"
#include "data/element.h"
#include "data/fingerprint.h"
#include "device/buffer.h"
#include "device/device.h"
#include <string.h>

/* The array of sizes at index, or the shape of `like` if there is none. */
static mg_shape read_cell(lua_State *L, int index, const mg_tensor *like) {
    mg_shape cell = {0};
    if (lua_isnoneornil(L, index)) return like->shape;
    luaL_checktype(L, index, LUA_TTABLE);
    cell.rank = (int)lua_objlen(L, index);
    if (cell.rank > MG_MAX_RANK)
        bind_fail(L, MG_USAGE, "batch: a shape of %d axes, at most %d are possible", cell.rank,
                  MG_MAX_RANK);
    for (int k = 0; k < cell.rank; k++) {
        lua_rawgeti(L, index, k + 1);
        cell.dim[k] = (int64_t)luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    if (mg_shape_check(&cell, "batch") != MG_OK) bind_raise(L);
    return cell;
}

/* first_unlike({value, ...}) -> the position of the first value that is no tensor of the dtype and
 * shape of the first, or nil if there is none. */
static int core_first_unlike(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    const int n = (int)lua_objlen(L, 1);
    const mg_tensor *first = NULL;
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        const mg_tensor *t = bind_to_tensor(L, -1);
        lua_pop(L, 1);
        if (i == 1) first = t;
        if (t && t->dtype == first->dtype && mg_shape_equal(&t->shape, &first->shape)) continue;
        lua_pushinteger(L, i);
        return 1;
    }
    return 0;
}

/* stack({tensor, ...}, [cell], [fill], [rows], [first]) -> a tensor of shape {rows, cell...}, see
 * data/element.h. cell: nil for the shape of the first tensor; rows: the number of tensors unless
 * given; first: 0. */
static int core_stack(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    const double fill = luaL_optnumber(L, 3, 0);
    const int n = (int)lua_objlen(L, 1);
    const int64_t rows = (int64_t)luaL_optnumber(L, 4, n), first = (int64_t)luaL_optnumber(L, 5, 0);
    if (n == 0) return bind_fail(L, MG_USAGE, "stack: expected tensors, got none");
    if (first < 0 || first > rows - n)
        return bind_fail(L, MG_USAGE, "stack: %d tensors from row %lld on are not in %lld rows", n,
                         (long long)first, (long long)rows);
    lua_settop(L, 3);
    bind_poll(L);
    mg_tensor **list = lua_newuserdata(L, (size_t)n * sizeof *list); /* borrowed from the table */
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        list[i] = bind_to_tensor(L, -1);
        if (!list[i])
            return bind_fail(L, MG_USAGE, "stack: entry %d is a %s, not a tensor", i + 1,
                             luaL_typename(L, -1));
        lua_pop(L, 1);
    }
    bind_eval(L, list, n);
    const mg_shape cell = read_cell(L, 2, list[0]);
    mg_tensor **place = bind_new_tensor(L);
    mg_tensor *t = mg_stack(list, n, &cell, fill, rows, first);
    if (!t && mg_error_code() == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        t = mg_stack(list, n, &cell, fill, rows, first);
    }
    bind_fill(L, place, t);
    bind_account(L, mg_tensor_bytes(t));
    return 1;
}

/* fingerprint(t) -> a whole number below 2^52: see data/fingerprint.h. */
static int core_fingerprint(lua_State *L) {
    mg_tensor *t = bind_to_tensor(L, 1);
    uint64_t hash;
    if (!t)
        return bind_fail(L, MG_USAGE, "fingerprint: expected a tensor, got a %s",
                         luaL_typename(L, 1));
    bind_eval(L, &t, 1);
    bind_check(L, mg_fingerprint_tensor(t, &hash));
    lua_pushnumber(L, (double)(hash >> 12));
    return 1;
}

/* A new tensor: row i of t, whose values are in host memory. Owned; NULL: MG_OOM. */
static mg_tensor *copy_row(const mg_tensor *t, int64_t i) {
    const mg_shape shape = mg_shape_of(t->shape.rank - 1, t->shape.dim + 1);
    const size_t bytes = mg_dtype_size((mg_dtype)t->dtype) * (size_t)mg_shape_count(&shape);
    mg_buffer *b = mg_buffer_new(t->device, bytes);
    if (!b) return NULL;
    memcpy(b->data, (const char *)t->buffer->data + (size_t)i * bytes, bytes);
    mg_tensor *row = mg_tensor_from_buffer(b, (mg_dtype)t->dtype, &shape);
    mg_buffer_release(b);
    return row;
}

/* unstack(t) -> {row, ...}: copies of the rows of a tensor in host memory. */
static int core_unstack(lua_State *L) {
    mg_tensor *t = bind_to_tensor(L, 1);
    if (!t || t->shape.rank == 0)
        return bind_fail(L, MG_USAGE, "unstack: expected a tensor with rows, got %s",
                         t ? "a single number" : luaL_typename(L, 1));
    bind_poll(L);
    bind_eval(L, &t, 1);
    if (!mg_device_kind_is_host_visible(t->device->api))
        return bind_fail(L, MG_USAGE, "unstack: the tensor has no values in the host's memory");
    bind_account(L, mg_tensor_bytes(t));
    lua_createtable(L, (int)t->shape.dim[0], 0);
    for (int64_t i = 0; i < t->shape.dim[0]; i++) {
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, copy_row(t, i));
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* shuffle_draw(seed, pass, at, held) -> which of the held elements comes next, from 1: see
 * mg_order_draw. */
static int core_shuffle_draw(lua_State *L) {
    const uint64_t seed = (uint64_t)luaL_checknumber(L, 1), pass = (uint64_t)luaL_checknumber(L, 2),
                   at = (uint64_t)luaL_checknumber(L, 3);
    lua_pushnumber(L, 1 + (double)mg_order_draw(seed, pass, at, (int64_t)luaL_checknumber(L, 4)));
    return 1;
}

const luaL_Reg mg_bind_elements[] = {
    {"first_unlike", core_first_unlike}, {"fingerprint", core_fingerprint},   {"stack", core_stack},
    {"unstack", core_unstack},           {"shuffle_draw", core_shuffle_draw}, {NULL, NULL}};
