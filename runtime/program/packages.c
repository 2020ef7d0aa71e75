/* Where require finds mgpu: its Lua files, the C binding, and the short names of modules. */
#include "program/program.h"
#include "bind/bind.h"
#include "program/attach/attach.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Short module names such as mgpu.layers; aliases.lua appends the searcher that finds them. */
static const char load_aliases[] = "table.insert(package.loaders, function(name)\n"
                                   "  if name:find '^mgpu%.' then require 'mgpu.aliases' end\n"
                                   "end)\n";

/* Writes the folder that holds lua/ and models/ to `root`: it is searched for relative to the
 * program file, so that a build folder and an installed prefix both work from anywhere. */
static bool find_root(char *root, size_t room) {
    /* for build/mgpulua, build/<hash>/mgpulua, and PREFIX/bin/mgpulua */
    static const char *const places[] = {"/..", "/../..", "/../share/mgpulua"};
    char self[1024], probe[1200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(probe, sizeof probe, "%s%s/lua/mgpu/init.lua", self, places[i]);
        if (access(probe, R_OK) != 0) continue;
        snprintf(probe, sizeof probe, "%s%s", self, places[i]);
        char *real = realpath(probe, NULL);
        bool fits = real && (size_t)snprintf(root, room, "%s", real) < room;
        free(real);
        return fits;
    }
    return false;
}

/* What SIGQUIT prints is of use from here on. */
static int open_core(lua_State *L) {
    mg_main_report_start();
    return luaopen_mgpu_core(L);
}

void mg_main_set_up_packages(lua_State *L) {
    char root[1024];
    const bool found = find_root(root, sizeof root);
    if (found) {
        lua_getglobal(L, "package");
        lua_getfield(L, -1, "path");
        lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", root, root, lua_tostring(L, -1));
        lua_setfield(L, -3, "path");
        lua_pop(L, 2);
    }
    mg_main_set_up_core(L, found ? root : NULL);
}

void mg_main_set_up_core(lua_State *L, const char *root) {
    if (root) {
        lua_pushstring(L, root);
        lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    }
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, open_core);
    lua_setfield(L, -2, "mgpu.core");
    lua_pushcfunction(L, mg_attach_open_link);
    lua_setfield(L, -2, "mgpu.attach.link");
    lua_pop(L, 2);
    if (luaL_dostring(L, load_aliases)) lua_pop(L, 1);
}
