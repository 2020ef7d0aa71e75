/* Where print, io.write and io.stdout:write go while a command runs: to whoever asked for it.
 *
 * Scripts keep `print` and files in locals, so the functions are left alone and the streams below
 * them are exchanged: the C library's variable stdout, which LuaJIT's print reads, and the FILE in
 * the userdata of io.stdout and io.stderr, which is their first field. Only the script's thread
 * prints by these. */
#define _GNU_SOURCE /* fopencookie */
#include "program/attach/attach.h"

#include <lauxlib.h>
#include <stdio.h>

enum { OUT = 1, ERR = 2 };

static const char *const kept[] = {[OUT] = "mgpu.attach.stdout", [ERR] = "mgpu.attach.stderr"};
static FILE *streams[ERR + 1]; /* ours; NULL: could not be made */
static FILE *before_stdout, *before[ERR + 1];
static void (*write_piece)(int to, const char *bytes, size_t n);

static ssize_t write_out(void *unused, const char *bytes, size_t n) {
    (void)unused;
    if (write_piece) write_piece(OUT, bytes, n);
    return (ssize_t)n;
}

static ssize_t write_err(void *unused, const char *bytes, size_t n) {
    (void)unused;
    if (write_piece) write_piece(ERR, bytes, n);
    return (ssize_t)n;
}

/* Puts a field of io that is a file into the registry. */
static void keep_file(lua_State *L, const char *field, int which) {
    lua_getglobal(L, "io");
    lua_getfield(L, -1, field);
    lua_setfield(L, LUA_REGISTRYINDEX, kept[which]);
    lua_pop(L, 1);
}

void mg_attach_output_open(lua_State *L) {
    keep_file(L, "stdout", OUT);
    keep_file(L, "stderr", ERR);
}

/* The FILE in the file that was kept; NULL: the script has closed it, or it is none. */
static FILE **file_of(lua_State *L, int which) {
    lua_getfield(L, LUA_REGISTRYINDEX, kept[which]);
    FILE **file = lua_isuserdata(L, -1) ? lua_touserdata(L, -1) : NULL;
    lua_pop(L, 1);
    return file && *file ? file : NULL;
}

static void exchange(lua_State *L, int which) {
    FILE **file = file_of(L, which);
    before[which] = NULL;
    if (!file || !streams[which]) return;
    before[which] = *file;
    *file = streams[which];
}

static void give_back(lua_State *L, int which) {
    FILE **file = file_of(L, which);
    if (streams[which]) fflush(streams[which]);
    if (file && before[which] && *file == streams[which]) *file = before[which];
}

void mg_attach_output_begin(lua_State *L, void (*write)(int to, const char *bytes, size_t n)) {
    const cookie_io_functions_t out = {.write = write_out}, err = {.write = write_err};
    if (!streams[OUT] && (streams[OUT] = fopencookie(NULL, "w", out)))
        setvbuf(streams[OUT], NULL, _IOLBF, BUFSIZ);
    if (!streams[ERR] && (streams[ERR] = fopencookie(NULL, "w", err)))
        setvbuf(streams[ERR], NULL, _IOLBF, BUFSIZ);
    write_piece = write;
    exchange(L, OUT);
    exchange(L, ERR);
    before_stdout = stdout;
    if (streams[OUT]) stdout = streams[OUT];
}

/* If a command has closed io.stdout, our stream is gone. */
void mg_attach_output_end(lua_State *L) {
    stdout = before_stdout;
    give_back(L, OUT);
    give_back(L, ERR);
    write_piece = NULL;
}
