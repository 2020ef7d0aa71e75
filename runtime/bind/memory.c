/* The collector's view of memory off the Lua heap.
 *
 * A tensor costs Lua a few dozen bytes and the machine perhaps megabytes. So that garbage tensors
 * are found in time, every n KiB taken off-heap advances the collector by n * heap / budget: one
 * cycle completes per budget of off-heap bytes (measured: peak about half the budget above what
 * lives, pauses under a millisecond; fixed steps collected nothing, byte-for-byte steps cost
 * seconds). The budget is the larger of 64 MiB and 1.4 times what lives. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "device/device.h"

enum { LEAST_BUDGET_KIB = 64 << 10, BATCH_BYTES = 64 << 10 };

static _Thread_local size_t unreported;

static int64_t live_kib(void) {
    int64_t bytes = mg_alloc_get_stats().live_bytes;
    for (mg_device *d = mg_device_first(); d; d = d->next) bytes += atomic_load(&d->used);
    return bytes >> 10;
}

void bind_account(lua_State *L, size_t bytes) {
    unreported += bytes;
    if (unreported < BATCH_BYTES) return;
    const int64_t n = (int64_t)(unreported >> 10), heap = lua_gc(L, LUA_GCCOUNT, 0);
    const int64_t wanted = live_kib() * 14 / 10;
    const int64_t budget = wanted > LEAST_BUDGET_KIB ? wanted : LEAST_BUDGET_KIB;
    const int64_t step = n * heap / budget;
    unreported = 0;
    lua_gc(L, LUA_GCSTEP, (int)(step < 1 ? 1 : step > 1 << 20 ? 1 << 20 : step));
}

/* memory(device) -> {used, peak, limit} in bytes; without a device: the library's own blocks. */
static int core_memory(lua_State *L) {
    lua_newtable(L);
    if (lua_isnoneornil(L, 1)) {
        const mg_alloc_stats s = mg_alloc_get_stats();
        lua_pushnumber(L, (double)s.live_bytes), lua_setfield(L, -2, "bytes");
        lua_pushnumber(L, (double)s.live_blocks), lua_setfield(L, -2, "blocks");
        lua_pushnumber(L, (double)mg_tensor_live_count()), lua_setfield(L, -2, "tensors");
        return 1;
    }
    mg_device *d = mg_device_find(luaL_checkstring(L, 1));
    if (!d) return bind_raise(L);
    lua_pushnumber(L, (double)atomic_load(&d->used)), lua_setfield(L, -2, "used");
    lua_pushnumber(L, (double)atomic_load(&d->peak)), lua_setfield(L, -2, "peak");
    if (d->limit != INT64_MAX) lua_pushnumber(L, (double)d->limit), lua_setfield(L, -2, "limit");
    return 1;
}

static int core_live_tensors(lua_State *L) {
    lua_pushnumber(L, (double)mg_tensor_live_count());
    return 1;
}

const luaL_Reg mg_bind_memory[] = {
    {"memory", core_memory}, {"live_tensors", core_live_tensors}, {NULL, NULL}};
