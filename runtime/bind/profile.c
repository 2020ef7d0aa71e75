/* What the script is doing, for reports and profiles: spans and layers that Lua names, and the
 * events of a profile (core/activity.h, core/profile.h). lua/mgpu/profile makes tables and files of
 * them. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/profile.h"
#include "device/device.h"
#include <string.h>

/* The text at index, interned for as long as the Lua state lives; NULL for nil. */
static const char *interned(lua_State *L, int index) {
    if (lua_isnoneornil(L, index)) return NULL;
    luaL_checkstring(L, index);
    lua_pushvalue(L, index);
    return bind_intern(L);
}

/* set_layer(name or nil) -> the name before: ops made from here on belong to this layer. */
static int core_set_layer(lua_State *L) {
    mg_origin *origin = &mg_context_get()->origin;
    const char *before = origin->layer;
    origin->layer = interned(L, 1);
    lua_pushstring(L, before);
    return 1;
}

/* span(kind, what, [number]) -> depth: the script is in this from here on, until span_end(depth).
 * kind: "script", "callback", "data", "checkpoint" ... */
static int core_span(lua_State *L) {
    const double number = luaL_optnumber(L, 3, 0);
    const int kind = luaL_checkoption(L, 1, NULL, mg_span_kind_names);
    const mg_span s = {.kind = (mg_span_kind)kind,
                       .what = interned(L, 2),
                       .number = number >= 0 && number < 0x1p53 ? (int64_t)number : 0};
    lua_pushinteger(L, mg_activity_enter(&s));
    return 1;
}

/* span_end(depth): ends it, and all spans inside that an error has left. */
static int core_span_end(lua_State *L) {
    mg_activity_leave((int)luaL_checkinteger(L, 1));
    return 0;
}

/* span_depth() -> the depth of the next span. */
static int core_span_depth(lua_State *L) {
    lua_pushinteger(L, mg_activity_depth());
    return 1;
}

/* activity_sums([on]) -> {kind = seconds}: how long the calling thread has been in spans of each
 * kind since activity_sums(true), without the spans inside them; nil where nothing is added up.
 * true begins from 0, false ends it. */
static int core_activity_sums(lua_State *L) {
    uint64_t sums[MG_SPAN_KINDS];
    if (lua_isboolean(L, 1)) mg_activity_sum(lua_toboolean(L, 1));
    if (!mg_activity_sums(sums)) return 0;
    lua_createtable(L, 0, MG_SPAN_KINDS);
    for (int i = 0; i < MG_SPAN_KINDS; i++) {
        lua_pushnumber(L, 1e-9 * (double)sums[i]);
        lua_setfield(L, -2, mg_span_kind_names[i]);
    }
    return 1;
}

/* profile_begin([most]): records the spans of all threads, the last `most` of each. */
static int core_profile_begin(lua_State *L) {
    enum { MOST = 1 << 19 };
    const double most = luaL_optnumber(L, 1, MOST);
    size_t room = 16;
    while ((double)room < most && room < MOST) room *= 2;
    bind_check(L, mg_profile_begin(room));
    return 0;
}

/* profile_settle(): waits for the devices that work on their own, so that their work is in the
 * profile. A device that fails says so at its next use. */
static int core_profile_settle(lua_State *L) {
    (void)L;
    for (mg_device *d = mg_device_first(); d; d = d->next)
        if (d->api->readback_wait && !mg_device_is_lost(d) && d->api->sync(d) != MG_OK)
            mg_error_clear();
    return 0;
}

/* profile_end() -> when it began and ended, in seconds of core.clock; and the time of day of the
 * beginning, in seconds since 1970. */
static int core_profile_end(lua_State *L) {
    mg_profile_end();
    lua_pushnumber(L, 1e-9 * (double)mg_profile_from());
    lua_pushnumber(L, 1e-9 * (double)mg_profile_to());
    lua_pushnumber(L, mg_profile_time_of_day());
    return 3;
}

/* profile_is_on() -> whether a profile is being recorded. */
static int core_profile_is_on(lua_State *L) {
    lua_pushboolean(L, mg_profile_is_on());
    return 1;
}

/* profile_drop(): frees the events. */
static int core_profile_drop(lua_State *L) {
    (void)L;
    mg_profile_drop();
    return 0;
}

/* profile_tracks() -> array of {index, name} of those with events. */
static int core_profile_tracks(lua_State *L) {
    lua_newtable(L);
    for (int i = 0, n = 0; i < MG_PROFILE_TRACKS; i++) {
        const char *name = mg_profile_track(i);
        if (!name) continue;
        lua_createtable(L, 0, 2);
        lua_pushinteger(L, i), lua_setfield(L, -2, "index");
        lua_pushstring(L, name), lua_setfield(L, -2, "name");
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

static void push_microseconds(lua_State *L, uint64_t time) {
    lua_pushnumber(L, 1e-3 * (double)(int64_t)(time - mg_profile_from()));
}

/* profile_kept_from() -> the time from which on all tracks have kept their events, in microseconds
 * since the profile began: 0 unless a ring was full. */
static int core_profile_kept_from(lua_State *L) {
    push_microseconds(L, mg_profile_kept_from());
    return 1;
}

/* The arguments of a call for an event; see profile_each. */
static int push_event(lua_State *L, const mg_event *e) {
    lua_pushstring(L, mg_span_kind_names[e->span.kind]);
    lua_pushstring(L, e->span.what);
    push_microseconds(L, e->start);
    push_microseconds(L, e->end);
    lua_pushinteger(L, e->depth);
    lua_pushstring(L, e->span.device);
    lua_pushstring(L, e->span.origin.layer);
    lua_pushstring(L, e->span.origin.where);
    lua_pushboolean(L, e->span.origin.backward);
    lua_pushnumber(L, (double)e->span.number);
    lua_pushnumber(L, (double)e->span.flops);
    lua_pushnumber(L, (double)e->span.bytes);
    return 12;
}

static void free_events(void *events) {
    mg_free(events);
}

/* profile_each(index, fn): calls fn(kind, what, start, end, depth, device, layer, where, backward,
 * number, flops, bytes) for each event of the track by their starts, outer ones first. Times are
 * microseconds since the profile began; device, layer and where may be nil, number is 0 if there is
 * none. */
static int core_profile_each(lua_State *L) {
    const int track = (int)luaL_checkinteger(L, 1);
    size_t n;
    uint64_t lost;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    if (track < 0 || track >= MG_PROFILE_TRACKS)
        return bind_fail(L, MG_USAGE, "profile_each: there is no track %d", track);
    bind_owner *owner = bind_new_owner(L, free_events);
    const mg_event *events = owner->held = mg_profile_events(track, &n, &lost);
    if (!events) bind_raise(L);
    for (size_t i = 0; i < n; i++) {
        lua_pushvalue(L, 2);
        lua_call(L, push_event(L, &events[i]), 0);
    }
    bind_release_owner(owner);
    return 0;
}

const luaL_Reg mg_bind_profile[] = {{"set_layer", core_set_layer},
                                    {"span", core_span},
                                    {"span_end", core_span_end},
                                    {"span_depth", core_span_depth},
                                    {"activity_sums", core_activity_sums},
                                    {"profile_begin", core_profile_begin},
                                    {"profile_settle", core_profile_settle},
                                    {"profile_end", core_profile_end},
                                    {"profile_is_on", core_profile_is_on},
                                    {"profile_drop", core_profile_drop},
                                    {"profile_tracks", core_profile_tracks},
                                    {"profile_each", core_profile_each},
                                    {"profile_kept_from", core_profile_kept_from},
                                    {NULL, NULL}};
