/* The random state and permutations in Lua. Random tensors are made by the op `random`. */
#include "bind/bind.h"
#include "core/rng.h"
#include "device/buffer.h"
#include <math.h>

/* seed(n): the random state of a fresh program with this seed. */
static int core_seed(lua_State *L) {
    bind_want(L, 1, LUA_TNUMBER, "seed");
    const double n = lua_tonumber(L, 1);
    if (!(n >= 0) || n != floor(n) || n > 4294967295.0)
        return bind_fail(L, MG_USAGE,
                         "seed: expected a whole number from 0 to 4294967295, got %.14g", n);
    mg_rng_set((mg_rng_state){.seed = (uint32_t)n, .base = 0});
    return 0;
}

/* rng_state([state]) -> {seed, base}, after setting it if one is given. base counts the draws;
 * checkpoints save both. */
static int core_rng_state(lua_State *L) {
    if (lua_istable(L, 1)) {
        lua_getfield(L, 1, "seed");
        lua_getfield(L, 1, "base");
        mg_rng_set((mg_rng_state){.seed = (uint32_t)luaL_checknumber(L, -2),
                                  .base = (uint64_t)luaL_checknumber(L, -1)});
    }
    const mg_rng_state now = mg_rng_get();
    lua_newtable(L);
    lua_pushnumber(L, (double)now.seed), lua_setfield(L, -2, "seed");
    lua_pushnumber(L, (double)now.base), lua_setfield(L, -2, "base");
    return 1;
}

/* permutation(n, [stream], [ordinal]) -> int32 tensor of 0..n-1 in random order, which depends on
 * these numbers and the seed only. */
static int core_permutation(lua_State *L) {
    const double n = luaL_checknumber(L, 1);
    const uint32_t stream = (uint32_t)luaL_optnumber(L, 2, 0);
    const uint64_t ordinal = (uint64_t)luaL_optnumber(L, 3, 0);
    if (n < 0 || n > 2147483647.0 || n != floor(n))
        return bind_fail(L, MG_USAGE,
                         "permutation: expected a whole number from 0 to 2147483647, got %.14g", n);
    const size_t count = (size_t)n; /* may be 0 */
    mg_tensor **place = bind_new_tensor(L);
    /* both in userdata: an error frees them */
    int64_t *order = lua_newuserdata(L, (count + 1) * sizeof *order);
    int32_t *ids = lua_newuserdata(L, (count + 1) * sizeof *ids);
    mg_permutation(order, (int64_t)count, mg_rng_get().seed, stream, ordinal);
    for (size_t i = 0; i < count; i++) ids[i] = (int32_t)order[i];
    const mg_shape shape = MG_SHAPE((int64_t)count);
    bind_fill(L, place, mg_tensor_from_host(ids, MG_I32, &shape, NULL));
    lua_pop(L, 2);
    return 1;
}

const luaL_Reg mg_bind_random[] = {{"seed", core_seed},
                                   {"rng_state", core_rng_state},
                                   {"permutation", core_permutation},
                                   {NULL, NULL}};
