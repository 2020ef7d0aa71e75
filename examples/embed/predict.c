/* Predicts with a saved model, from C:
 *
 *     make && ./predict model.safetensors 0.5 -1 2
 *
 * The numbers are one row of the model's input; the program prints one row of its output. The work
 * is done by a few lines of Lua in a state of LuaJIT, as in a host program of any size. */
#include <lauxlib.h>
#include <lualib.h>
#include <mgpu.h>
#include <stdio.h>
#include <stdlib.h>

static const char script[] =
    "local mgpu, path, row = ...\n"
    "local model = mgpu.load_model(path)\n"
    "return model:predict(mgpu.tensor { row }, { verbose = 0 }):totable()[1]\n";

typedef struct job {
    const char *model;
    char **numbers; /* as text, NULL behind the last */
} job;

/* Runs in lua_cpcall, so that every error of Lua ends here and not the process. */
static int predict(lua_State *L) {
    const job *j = lua_touserdata(L, 1);
    if (luaL_loadbuffer(L, script, sizeof script - 1, "=predict.c")) return lua_error(L);
    luaopen_mgpu(L);
    lua_pushstring(L, j->model);
    lua_newtable(L);
    for (int i = 0; j->numbers[i]; i++) {
        lua_pushnumber(L, strtod(j->numbers[i], NULL));
        lua_rawseti(L, -2, i + 1);
    }
    lua_call(L, 3, 1);
    for (int i = 1; i <= (int)lua_objlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        printf("%.9g\n", lua_tonumber(L, -1));
        lua_pop(L, 1);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: predict MODEL NUMBER...\n");
        return 1;
    }
    lua_State *L = luaL_newstate();
    if (!L) return 1;
    luaL_openlibs(L);
    const int failed = lua_cpcall(L, predict, &(job){argv[1], argv + 2});
    if (failed) fprintf(stderr, "predict: %s\n", lua_tostring(L, -1));
    lua_close(L);
    mg_devices_close();
    return failed != 0;
}
