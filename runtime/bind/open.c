/* Finding the Lua files, and luaopen_mgpu, with which a host program opens all of mgpu. */
#define _GNU_SOURCE /* dladdr */
#include "bind/bind.h"
#include "core/io.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pushes the folder that holds lua/ and models/, found relative to this library (in a build tree or
 * under an installed prefix), or nil. Links to the library are followed. */
static void push_root_of_library(lua_State *L) {
    static const char *const places[] = {"..", "../..", "../../share/mgpulua",
                                         "../../../share/mgpulua"};
    Dl_info self;
    char *path = NULL;
    if (dladdr((const void *)(uintptr_t)&push_root_of_library, &self) && self.dli_fname)
        path = realpath(self.dli_fname, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;
    char root[1024] = "";
    for (size_t i = 0; slash && i < sizeof places / sizeof places[0]; i++) {
        char index[1100];
        snprintf(root, sizeof root, "%.*s/%s", (int)(slash - path), path, places[i]);
        snprintf(index, sizeof index, "%s/lua/mgpu/init.lua", root);
        if (mg_io_exists(index)) break;
        root[0] = '\0';
    }
    free(path);
    if (root[0])
        lua_pushstring(L, root);
    else
        lua_pushnil(L);
}

/* Pushes the root folder: the one that the program stored in the registry, else MGPU_ROOT, else the
 * one found relative to the library. The registry then keeps it for bind_is_ours. */
static void push_root(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    if (getenv("MGPU_ROOT"))
        lua_pushstring(L, getenv("MGPU_ROOT"));
    else
        push_root_of_library(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.root");
}

void bind_set_root(lua_State *L) {
    push_root(L);
    lua_setfield(L, -2, "root");
}

/* Pushes a field of the table `package`, which luaL_openlibs makes. */
static void push_package_field(lua_State *L, const char *name, int type) {
    lua_getglobal(L, "package");
    if (!lua_istable(L, -1))
        luaL_error(L, "luaopen_mgpu: the state has no table package: call luaL_openlibs first");
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    if (lua_type(L, -1) != type) luaL_error(L, "luaopen_mgpu: package.%s is damaged", name);
}

/* Puts the folders of the front end in front of package.path. */
static void extend_path(lua_State *L, const char *root) {
    lua_getglobal(L, "package");
    push_package_field(L, "path", LUA_TSTRING);
    lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", root, root, lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_pop(L, 2);
}

/* Loads init.lua itself: `require "mgpu"` would call package.preload.mgpu again, which may be this
 * function. */
int luaopen_mgpu(lua_State *L) {
    push_package_field(L, "loaded", LUA_TTABLE);
    const int loaded = lua_gettop(L);
    lua_getfield(L, loaded, "mgpu");
    if (lua_istable(L, -1)) {
        lua_remove(L, loaded);
        return 1;
    }
    push_root(L);
    const char *root = lua_tostring(L, -1);
    if (!root)
        return luaL_error(L, "luaopen_mgpu: the Lua files of mgpu were not found from where the "
                             "library lies: set MGPU_ROOT to the folder that holds lua and models");
    push_package_field(L, "preload", LUA_TTABLE);
    lua_pushcfunction(L, luaopen_mgpu_core);
    lua_setfield(L, -2, "mgpu.core");
    extend_path(L, root);
    lua_pushfstring(L, "%s/lua/mgpu/init.lua", root);
    if (luaL_loadfile(L, lua_tostring(L, -1))) return lua_error(L);
    lua_pushliteral(L, "mgpu");
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, loaded, "mgpu");
    lua_replace(L, loaded); /* the host may call this as a C function: one value, not more */
    lua_settop(L, loaded);
    return 1;
}
