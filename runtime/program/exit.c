/* The end of the process.
 *
 * Output that could not be written, to a full disk for example, must not look like success. A
 * thread that still computes, after Ctrl-C or on a lost device, may use memory that the libraries
 * free at exit: then nothing is freed. */
#include "core/limits.h"
#include "device/device.h"
#include "program/attach/attach.h"
#include "program/program.h"
#include "world/world.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void mg_main_end(int status) {
    mg_attach_stop();
    errno = 0;
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written) {
        fprintf(stderr, "%s: cannot write to standard output: %s\n", mg_main_name,
                errno ? mg_reason(errno) : "a write failed");
        if (status == EXIT_SUCCESS) status = MG_EXIT_FILE;
    }
    mg_world_stop(status);
    mg_devices_close();
    if (!written || mg_device_first()) {
        fflush(NULL);
        _exit(status);
    }
    exit(status);
}

static pid_t process; /* that runs the script */

void mg_main_begin(void) {
    process = getpid();
}

int mg_main_at_end(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.at_end");
    if (!lua_isfunction(L, -1) || getpid() != process) {
        lua_pop(L, 1);
        return EXIT_SUCCESS;
    }
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.at_end");
    return mg_main_report(L, mg_main_call(L, 0, 0));
}

int mg_main_os_exit(lua_State *L) {
    int status = lua_isboolean(L, 1) ? (lua_toboolean(L, 1) ? EXIT_SUCCESS : EXIT_FAILURE)
                                     : (int)luaL_optinteger(L, 1, EXIT_SUCCESS);
    if (mg_attach_is_running())
        return luaL_error(L,
                          "os.exit would end the job, not only this prompt: Ctrl-D leaves, "
                          "job.stop() ends the training, and kill %d the process",
                          (int)getpid());
    const int ended = mg_main_at_end(L);
    if (!status) status = ended;
    if (lua_toboolean(L, 2)) {
        mg_main_report_stop();
        lua_close(L);
    }
    mg_main_end(status);
}
