/* Tracebacks that show the user's functions.
 *
 * Functions of lua/mgpu/ and models/ are left out. Functions in C and of LuaJIT's library are shown
 * only between two functions of the user, such as table.sort with a comparison function of the
 * user. MGPU_TRACE=full shows all functions. For a deep stack, only the innermost and the outermost
 * functions are shown. */
#include "bind/bind.h"
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INNER = 12, MOST_OUTER = 10, LOOKED_AT = 200 };

static bool wants_all(void) {
    const char *wanted = getenv("MGPU_TRACE");
    return wanted && strcmp(wanted, "full") == 0;
}

/* Whether the level is a Lua function that is neither ours nor LuaJIT's. */
static bool is_users(lua_State *L, int level) {
    lua_Debug frame;
    if (level < 0 || !lua_getstack(L, level, &frame)) return false;
    lua_getinfo(L, "S", &frame);
    return strcmp(frame.what, "C") != 0 && frame.short_src[0] != '[' &&
           !bind_is_ours(L, frame.source);
}

static bool is_shown(lua_State *L, int level, bool all) {
    lua_Debug frame;
    if (all || is_users(L, level)) return true;
    if (!lua_getstack(L, level, &frame)) return false;
    lua_getinfo(L, "S", &frame);
    const bool is_foreign = strcmp(frame.what, "C") == 0 || frame.short_src[0] == '[';
    return is_foreign && is_users(L, level - 1) && is_users(L, level + 1);
}

/* The number of levels of the stack. Found by bisection, because lua_getstack walks from the top
 * each time. */
static int depth_of(lua_State *L) {
    lua_Debug frame;
    int below = 0, above = 1;
    while (lua_getstack(L, above, &frame)) below = above, above *= 2;
    while (below < above) {
        const int middle = (below + above) / 2;
        if (lua_getstack(L, middle, &frame))
            below = middle + 1;
        else
            above = middle;
    }
    return above;
}

/* Appends the line of a level to the buffer. */
static void add_level(lua_State *L, luaL_Buffer *b, int level) {
    lua_Debug frame;
    if (!lua_getstack(L, level, &frame)) return;
    lua_getinfo(L, "Snl", &frame);
    lua_pushfstring(L, "\n\t%s:", frame.short_src);
    luaL_addvalue(b);
    if (frame.currentline > 0) {
        lua_pushfstring(L, "%d:", frame.currentline);
        luaL_addvalue(b);
    }
    if (*frame.namewhat)
        lua_pushfstring(L, " in function '%s'", frame.name);
    else if (*frame.what == 'm')
        lua_pushliteral(L, " in main chunk");
    else if (*frame.what == 'C')
        lua_pushliteral(L, " in a C function");
    else
        lua_pushfstring(L, " in function <%s:%d>", frame.short_src, frame.linedefined);
    luaL_addvalue(b);
}

/* Writes the levels to show, from the innermost on, to `levels`, with -1 where some are left out.
 * Returns how many entries there are. */
static int choose(lua_State *L, int from, int levels[MOST_INNER + MOST_OUTER + 1]) {
    const bool all = wants_all();
    const int depth = depth_of(L);
    int n = 0, level = from, outer[MOST_OUTER] = {0}, n_outer = 0;
    for (; level < depth && level - from < LOOKED_AT && n < MOST_INNER; level++)
        if (is_shown(L, level, all)) levels[n++] = level;
    const int lowest = depth - LOOKED_AT > level ? depth - LOOKED_AT : level;
    int last = depth - 1;
    for (; last >= lowest && n_outer < MOST_OUTER; last--)
        if (is_shown(L, last, all)) outer[n_outer++] = last;
    bool left_out = lowest > level;
    for (; last >= lowest && !left_out; last--) left_out = is_shown(L, last, all);
    if (left_out) levels[n++] = -1;
    while (n_outer > 0) levels[n++] = outer[--n_outer];
    return n;
}

/* Whether this level is an input of the prompt: the message names its line already. */
static bool is_input(lua_State *L, int level) {
    lua_Debug frame;
    if (level < 0 || !lua_getstack(L, level, &frame)) return false;
    lua_getinfo(L, "S", &frame);
    return *frame.what == 'm' && strncmp(frame.source, "=stdin[", 7) == 0;
}

void mg_main_push_traceback(lua_State *L, int from) {
    int levels[MOST_INNER + MOST_OUTER + 1];
    const int n = choose(L, from, levels);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    if (n > 1 || (n == 1 && !is_input(L, levels[0]))) {
        luaL_addstring(&b, "\nstack traceback:");
        for (int i = 0; i < n; i++) {
            if (levels[i] < 0)
                luaL_addstring(&b, "\n\t...");
            else
                add_level(L, &b, levels[i]);
        }
    }
    luaL_pushresult(&b);
}
