/* The versions of optional libraries in Lua, for --doctor, and programs beside the library. */
#include "core/library.h"
#include "core/plugin.h"
#include "bind/bind.h"
#include <string.h>

/* version_of(file, function, form) -> the version that the library's function returns, or nil and
 * the reason. The library is searched for in the same way as the devices' libraries. form: how the
 * function returns the number: "result" size_t f(void); "pointer" int f(int *); "pair" int f(int
 * *major, int *minor), which gives 1000 * major + minor. */
static int core_version_of(lua_State *L) {
    static const char *const forms[] = {"result", "pointer", "pair", NULL};
    const char *const symbols[] = {luaL_checkstring(L, 2), NULL};
    const int form = luaL_checkoption(L, 3, NULL, forms);
    void *address[1] = {NULL};
    mg_library library = {.file = luaL_checkstring(L, 1),
                          .what = "it",
                          .install = "see above",
                          .symbols = symbols,
                          .table = address};
    if (mg_library_open(&library) != MG_OK) {
        mg_error_clear();
        lua_pushnil(L);
        lua_pushstring(L, library.problem);
        return 2;
    }
    union {
        void *address;
        size_t (*result)(void);
        int (*pointer)(int *);
        int (*pair)(int *, int *);
    } function = {.address = address[0]};
    int major = 0, minor = 0;
    if (form == 0) {
        lua_pushnumber(L, (double)function.result());
    } else if (form == 1) {
        function.pointer(&major);
        lua_pushinteger(L, major);
    } else {
        function.pair(&major, &minor);
        lua_pushinteger(L, 1000 * major + minor);
    }
    return 1;
}

/* plugin_program(name) -> the path of the program mgpu-NAME, or nil: see core/plugin.h. */
static int core_plugin_program(lua_State *L) {
    char path[4200];
    if (!mg_plugin_program(bind_path(L, 1, "plugin_program"), path, sizeof path)) return 0;
    lua_pushstring(L, path);
    return 1;
}

const luaL_Reg mg_bind_library[] = {
    {"version_of", core_version_of}, {"plugin_program", core_plugin_program}, {NULL, NULL}};
