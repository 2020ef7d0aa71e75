/* Garbage collection and memory outside the Lua heap.
 *
 * A tensor takes a few dozen bytes of the Lua heap, but perhaps megabytes outside, which Lua's
 * collector does not see. So every n KiB allocated outside the heap advance the collector by n *
 * heap / budget KiB: one collection cycle for each `budget` of such memory. The budget is the
 * larger of 64 MiB and 1.4 times the memory of the devices at the end of the last cycle, when there
 * was least garbage. Memory that a program frees itself is not garbage: it is subtracted from what
 * is allocated next, up to one budget. Before, collections were a tenth of the time of relu and its
 * gradient over 51 MB, whose results were freed at once.
 *
 * Measured: the peak lies about half a budget above the live memory, with pauses below a
 * millisecond. Alternatives that failed: steps of a fixed size collected nothing; steps of one KiB
 * for each KiB allocated cost seconds; with a budget of 1.4 times the current memory of the
 * devices, garbage increased the budget, and collections freed more at once than the cpu device
 * keeps for the next tensors. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "device/device.h"
#include "graph/graph.h"

/* Allocations are reported to the collector in batches of at least BATCH_BYTES. */
enum { LEAST_BUDGET_KIB = 64 << 10, BATCH_BYTES = 64 << 10 };

/* Bytes allocated less bytes that the program has freed, since the last report. */
static _Thread_local int64_t unreported;
static _Thread_local int64_t live_kib; /* memory of the devices at the end of the last cycle */

static int64_t used_bytes(void) {
    int64_t bytes = 0;
    for (mg_device *d = mg_device_first(); d; d = d->next) bytes += atomic_load(&d->used);
    return bytes;
}

static int64_t budget_kib(void) {
    const int64_t wanted = live_kib * 14 / 10;
    return wanted > LEAST_BUDGET_KIB ? wanted : LEAST_BUDGET_KIB;
}

void bind_account(lua_State *L, size_t bytes) {
    unreported += (int64_t)(bytes + mg_eval_take_bytes());
    if (unreported < BATCH_BYTES) return;
    const int64_t n = unreported >> 10, heap = lua_gc(L, LUA_GCCOUNT, 0);
    const int64_t step = n * heap / budget_kib();
    unreported = 0;
    const bool ended = lua_gc(L, LUA_GCSTEP, (int)(step < 1 ? 1 : step > 1 << 20 ? 1 << 20 : step));
    if (ended) live_kib = used_bytes() >> 10;
}

/* What the devices hold before and after says how much was freed: others may share the memory. */
void bind_free_tensor(mg_tensor *t) {
    const int64_t before = used_bytes();
    mg_tensor_release(t);
    const int64_t freed = before - used_bytes(), most = budget_kib() << 10;
    if (freed > 0) unreported -= freed;
    if (unreported < -most) unreported = -most;
}

/* ---- tidy ---- */

static const char MADE[] = "mgpu.made"; /* registry: the tensors made inside the innermost tidy */
static _Thread_local int n_tidy;        /* nested calls of tidy */

void bind_note_made(lua_State *L) {
    if (!n_tidy) return;
    lua_getfield(L, LUA_REGISTRYINDEX, MADE);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    lua_pop(L, 1);
}

int bind_tidy_suspend(void) {
    const int suspended = n_tidy;
    n_tidy = 0;
    return suspended;
}

void bind_tidy_resume(int suspended) {
    n_tidy = suspended;
}

/* Enters the value at index, and everything in it if it is a table, as keys into the table at
 * `kept`. */
static void mark_kept(lua_State *L, int index, int kept) {
    if (!lua_istable(L, index) && !lua_isuserdata(L, index)) return;
    luaL_checkstack(L, 4, "tidy");
    lua_pushvalue(L, index);
    lua_rawget(L, kept);
    const bool seen = lua_toboolean(L, -1); /* tables may contain themselves */
    lua_pop(L, 1);
    if (seen) return;
    lua_pushvalue(L, index);
    lua_pushboolean(L, 1);
    lua_rawset(L, kept);
    if (!lua_istable(L, index)) return;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) mark_kept(L, lua_gettop(L), kept);
}

/* Frees the tensors in the list at `made` that are not keys of the table at `kept`. The others are
 * listed with the enclosing tidy. */
static void free_made(lua_State *L, int made, int kept) {
    const int n = (int)lua_objlen(L, made);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, made, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, kept);
        const bool spared = lua_toboolean(L, -1);
        lua_pop(L, 1);
        mg_tensor **place = lua_touserdata(L, -1);
        if (spared) {
            bind_note_made(L);
        } else {
            bind_free_tensor(*place);
            *place = NULL;
        }
        lua_pop(L, 1);
    }
}

/* Runs inside pcall, since marking may run out of memory: marks the tensors that the results hold.
 * Stack: kept, results. */
static int keep_results(lua_State *L) {
    const int last = lua_gettop(L);
    for (int i = 2; i <= last; i++) mark_kept(L, i, 1);
    return 0;
}

/* tidy(fn, ...) -> fn's results. Every other tensor made inside is freed, also after an error.
 * Stack: the enclosing tidy's list, this one's, kept, then fn and its arguments, or its results. */
static int core_tidy(lua_State *L) {
    bind_want(L, 1, LUA_TFUNCTION, "tidy");
    const int n_args = lua_gettop(L) - 1;
    lua_getfield(L, LUA_REGISTRYINDEX, MADE); /* an outer tidy's */
    lua_insert(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_insert(L, 2);
    lua_setfield(L, LUA_REGISTRYINDEX, MADE);
    lua_newtable(L); /* kept */
    lua_insert(L, 3);
    n_tidy++;
    int failed = lua_pcall(L, n_args, LUA_MULTRET, 0);
    const int last = lua_gettop(L), n_results = last - 3;
    if (!failed && lua_checkstack(L, n_results + 2)) {
        lua_pushcfunction(L, keep_results);
        for (int i = 3; i <= last; i++) lua_pushvalue(L, i);
        failed = lua_pcall(L, n_results + 1, 0, 0);
    }
    n_tidy--;
    lua_pushvalue(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, MADE);
    free_made(L, 2, 3);
    return failed ? lua_error(L) : n_results;
}

/* ---- reports ---- */

/* memory(device) -> {used, peak, limit} of a device in bytes; memory() -> {bytes, blocks, tensors}
 * of the library itself. */
static int core_memory(lua_State *L) {
    lua_settop(L, 1);
    lua_newtable(L);
    if (lua_isnil(L, 1)) {
        const mg_alloc_stats s = mg_alloc_get_stats();
        lua_pushnumber(L, (double)s.live_bytes), lua_setfield(L, -2, "bytes");
        lua_pushnumber(L, (double)s.live_blocks), lua_setfield(L, -2, "blocks");
        lua_pushnumber(L, (double)mg_tensor_live_count()), lua_setfield(L, -2, "tensors");
        return 1;
    }
    bind_want(L, 1, LUA_TSTRING, "memory");
    mg_device *d = bind_device(L, lua_tostring(L, 1));
    lua_pushnumber(L, (double)atomic_load(&d->used)), lua_setfield(L, -2, "used");
    lua_pushnumber(L, (double)atomic_load(&d->peak)), lua_setfield(L, -2, "peak");
    if (d->limit != INT64_MAX) lua_pushnumber(L, (double)d->limit), lua_setfield(L, -2, "limit");
    return 1;
}

/* alloc_fault(n [, always]): makes the n-th allocation of the library from now fail, for tests, and
 * if `always` all later ones; see core/alloc.h. alloc_fault() removes it. */
static int core_alloc_fault(lua_State *L) {
    const int64_t n = luaL_optinteger(L, 1, 0);
    (lua_toboolean(L, 2) ? mg_alloc_fail_from : mg_alloc_fail_after)(n);
    return 0;
}

/* live_tensors() -> how many tensors exist, in all Lua states. */
static int core_live_tensors(lua_State *L) {
    lua_pushnumber(L, (double)mg_tensor_live_count());
    return 1;
}

const luaL_Reg mg_bind_memory[] = {{"memory", core_memory},
                                   {"alloc_fault", core_alloc_fault},
                                   {"live_tensors", core_live_tensors},
                                   {"tidy", core_tidy},
                                   {NULL, NULL}};
