/* The random state and permutations in Lua. Random tensors are made by the op `random`. */
#include "bind/bind.h"
#include "core/rng.h"
#include "device/buffer.h"
#include <math.h>

#define MAX_SEED 4294967295.0       /* of 32 bits */
#define MAX_BASE 9007199254740992.0 /* 2^53: Lua's numbers are exact up to this */

/* seed(n): sets the random state to that of a new process with this seed. */
static int core_seed(lua_State *L) {
    bind_want(L, 1, LUA_TNUMBER, "seed");
    const double n = lua_tonumber(L, 1);
    if (!(n >= 0) || n != floor(n) || n > MAX_SEED)
        return bind_fail(L, MG_USAGE,
                         "seed: expected a whole number from 0 to 4294967295, got %.14g", n);
    mg_rng_set((mg_rng_state){.seed = (uint32_t)n, .base = 0});
    return 0;
}

/* The field of the random state at stack position 1: a whole number from 0 to max. */
static double state_field(lua_State *L, const char *name, double max) {
    lua_getfield(L, 1, name);
    const double n = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
    lua_pop(L, 1);
    if (!(n >= 0) || n != floor(n) || n > max)
        bind_fail(L, MG_USAGE,
                  "rng_state: the state's %s must be a whole number from 0 to %.0f: a state is a "
                  "table {seed =, base =} that mgpu.rng_state() has returned",
                  name, max);
    return n;
}

/* rng_state([state]) -> {seed, base}, after setting it if one is given. base counts the draws;
 * checkpoints save both. */
static int core_rng_state(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        bind_want(L, 1, LUA_TTABLE, "rng_state");
        const double seed = state_field(L, "seed", MAX_SEED);
        const double base = state_field(L, "base", MAX_BASE);
        mg_rng_set((mg_rng_state){.seed = (uint32_t)seed, .base = (uint64_t)base});
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
