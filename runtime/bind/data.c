/* Data sets in Lua: IDX files, drawn digits, downloads. */
#include "bind/bind.h"
#include "data/digits.h"
#include "data/fetch.h"
#include "data/idx.h"
#include "data/stream.h"
#include "device/device.h"
#include <math.h>

enum { MOST_DIGITS = 1000 * 1000, PIXELS = MG_DIGIT_SIDE * MG_DIGIT_SIDE };

/* idx_load(path) -> tensor. Short of memory: one full collection, one more try. */
static int core_idx_load(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    mg_tensor *t = mg_idx_load(path);
    if (!t && mg_error_code() == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        t = mg_idx_load(path);
    }
    bind_fill(L, place, t);
    bind_account(L, mg_tensor_bytes(t));
    return 1;
}

/* A whole number from 0 to `most`, which a double holds exactly. */
static uint64_t whole(lua_State *L, double v, const char *what, double most) {
    if (!(v >= 0 && v <= most && v == floor(v)))
        bind_fail(L, MG_USAGE, "digits: %s must be a whole number from 0 to %.0f, got %.14g", what,
                  most, v);
    return (uint64_t)v;
}

/* digits(n, seed) -> uint8 {n, 28, 28}, int32 {n} */
static int core_digits(lua_State *L) {
    const size_t n = whole(L, luaL_checknumber(L, 1), "the number of images", MOST_DIGITS);
    const uint64_t seed = whole(L, luaL_optnumber(L, 2, 0), "the seed", 0x1p53);
    const mg_shape image_shape = MG_SHAPE((int64_t)n, MG_DIGIT_SIDE, MG_DIGIT_SIDE);
    const mg_shape label_shape = MG_SHAPE((int64_t)n);
    bind_poll(L);
    mg_tensor **x = bind_new_tensor(L), **y = bind_new_tensor(L);
    uint8_t *images = lua_newuserdata(L, n * PIXELS + 1);
    int32_t *labels = lua_newuserdata(L, (n + 1) * sizeof *labels);
    bind_check(L, mg_digits_draw((int64_t)n, seed, images, labels));
    bind_fill(L, x, mg_tensor_from_host(images, MG_U8, &image_shape, NULL));
    bind_fill(L, y, mg_tensor_from_host(labels, MG_I32, &label_shape, NULL));
    lua_pop(L, 2);
    bind_account(L, n * (PIXELS + sizeof *labels));
    return 2;
}

/* fetch(url, path, [sha256]) */
static int core_fetch(lua_State *L) {
    const char *url = luaL_checkstring(L, 1), *path = luaL_checkstring(L, 2);
    bind_poll(L);
    bind_check(L, mg_fetch(url, path, luaL_optstring(L, 3, NULL)));
    return 0;
}

/* ---- streams ---- */

#define BIND_STREAM "mgpu.stream"

static mg_stream *check_stream(lua_State *L) {
    mg_stream **s = luaL_checkudata(L, 1, BIND_STREAM);
    if (!*s) bind_fail(L, MG_USAGE, "the stream is closed");
    return *s;
}

/* stream(depth, t1, ..., tn): over rows of tensors in host memory */
static int core_stream(lua_State *L) {
    mg_tensor *tensors[MG_STREAM_TENSORS];
    const int depth = (int)luaL_checkinteger(L, 1), n = lua_gettop(L) - 1;
    if (n < 1 || n > MG_STREAM_TENSORS || depth < 1)
        return bind_fail(L, MG_USAGE, "stream: 1 to %d tensors and a depth of at least 1",
                         MG_STREAM_TENSORS);
    for (int i = 0; i < n; i++) {
        tensors[i] = bind_take_tensor(L, i + 2, NULL, "stream");
        if (tensors[i]->shape.rank == 0 || tensors[i]->shape.dim[0] != tensors[0]->shape.dim[0])
            return bind_fail(L, MG_USAGE, "stream: the tensors must have equally many rows");
        if (!tensors[i]->place.device->api->host_memory)
            return bind_fail(L, MG_USAGE, "stream: tensor %d lies on %s, not in host memory", i + 1,
                             tensors[i]->place.device->name);
    }
    bind_eval(L, tensors, n);
    mg_stream **s = lua_newuserdata(L, sizeof *s);
    *s = NULL;
    luaL_getmetatable(L, BIND_STREAM);
    lua_setmetatable(L, -2);
    *s = mg_stream_new(tensors, n, depth);
    return *s ? 1 : bind_raise(L);
}

/* push(array of row numbers from 0) */
static int stream_push(lua_State *L) {
    mg_stream *s = check_stream(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    const size_t n = lua_objlen(L, 2);
    int32_t *rows = lua_newuserdata(L, (n + 1) * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 2, (int)i + 1);
        rows[i] = (int32_t)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    bind_check(L, mg_stream_push(s, rows, (int64_t)n));
    return 0;
}

static int stream_ahead(lua_State *L) {
    lua_pushinteger(L, mg_stream_ahead(check_stream(L)));
    return 1;
}

/* pop() -> the tensors of the first batch */
static int stream_pop(lua_State *L) {
    mg_stream *s = check_stream(L);
    mg_tensor **places[MG_STREAM_TENSORS], *batch[MG_STREAM_TENSORS] = {NULL};
    bind_poll(L);
    luaL_checkstack(L, MG_STREAM_TENSORS, "pop");
    for (int i = 0; i < MG_STREAM_TENSORS; i++) places[i] = bind_new_tensor(L);
    bind_check(L, mg_stream_pop(s, batch));
    size_t bytes = 0;
    int n = 0;
    for (; n < MG_STREAM_TENSORS && batch[n]; n++) {
        *places[n] = batch[n];
        bytes += mg_tensor_bytes(batch[n]);
    }
    lua_pop(L, MG_STREAM_TENSORS - n);
    bind_account(L, bytes);
    return n;
}

static int stream_close(lua_State *L) {
    mg_stream **s = luaL_checkudata(L, 1, BIND_STREAM);
    mg_stream_free(*s);
    *s = NULL;
    return 0;
}

void bind_open_data(lua_State *L) {
    luaL_newmetatable(L, BIND_STREAM);
    lua_pushcfunction(L, stream_close), lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, stream_push), lua_setfield(L, -2, "push");
    lua_pushcfunction(L, stream_pop), lua_setfield(L, -2, "pop");
    lua_pushcfunction(L, stream_ahead), lua_setfield(L, -2, "ahead");
    lua_pushcfunction(L, stream_close), lua_setfield(L, -2, "close");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

const luaL_Reg mg_bind_data[] = {{"idx_load", core_idx_load},
                                 {"digits", core_digits},
                                 {"fetch", core_fetch},
                                 {"stream", core_stream},
                                 {NULL, NULL}};
