/* Data sets in Lua: IDX files, drawn digits, downloads. */
#include "bind/bind.h"
#include "data/digits.h"
#include "data/fetch.h"
#include "data/idx.h"
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

const luaL_Reg mg_bind_data[] = {
    {"idx_load", core_idx_load}, {"digits", core_digits}, {"fetch", core_fetch}, {NULL, NULL}};
