/* The terminal in Lua: its size, its answers to queries (escape sequences), and text that is fit
 * for it. */
#include "bind/bind.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/threads.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { ANSWER_BYTES = 256 };

/* Of the terminal that the output really goes to; -1: standard output tells, 0: it is none. */
static _Thread_local int pretended = -1;

void bind_terminal_pretend(int columns) {
    pretended = columns;
}

/* columns() -> the width of the terminal on standard output (80 if it is unknown), or nil if
 * standard output is no terminal; for progress bars. */
static int core_columns(lua_State *L) {
    struct winsize size;
    if (pretended > 0) return lua_pushinteger(L, pretended), 1;
    if (pretended == 0 || !isatty(STDOUT_FILENO)) return 0;
    int known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    lua_pushinteger(L, known ? size.ws_col : 80);
    return 1;
}

/* terminal_size() -> columns, rows, width and height in pixels of the terminal on standard output;
 * 0 for unknown values; no results if standard output is not a terminal. */
static int core_terminal_size(lua_State *L) {
    struct winsize size = {0};
    if (pretended >= 0 || !isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    lua_pushinteger(L, size.ws_col);
    lua_pushinteger(L, size.ws_row);
    lua_pushinteger(L, size.ws_xpixel);
    lua_pushinteger(L, size.ws_ypixel);
    return 4;
}

/* Writes everything; false after a failure. */
static bool write_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        const ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

/* Reads until the byte `last` or the deadline. Returns how many bytes there are in `answer`. */
static size_t read_answer(int fd, char last, double seconds, char *answer) {
    const double deadline = mg_seconds() + seconds;
    size_t n = 0;
    while (n < ANSWER_BYTES) {
        const double left = deadline - mg_seconds();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)(left * 1000) + 1) <= 0) break;
        if (read(fd, &answer[n], 1) != 1) break;
        if (answer[n++] == last) break;
    }
    return n;
}

/* Sends a query, with the terminal in a mode that neither echoes the answer nor waits for a
 * line. */
static size_t ask(int fd, const char *question, size_t n, char last, double seconds, char *answer) {
    struct termios before, raw;
    if (tcgetattr(fd, &before) != 0) return 0;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(fd, TCSADRAIN, &raw) != 0) return 0;
    const size_t got = write_all(fd, question, n) ? read_answer(fd, last, seconds, answer) : 0;
    tcsetattr(fd, TCSADRAIN, &before);
    return got;
}

/* terminal_ask(question, last, seconds) -> the answer of the controlling terminal up to the byte
 * `last`; "" if it does not answer in time, or if the process is not in the foreground of a
 * terminal. */
static int core_terminal_ask(lua_State *L) {
    size_t n;
    const char *question = luaL_checklstring(L, 1, &n), *last = luaL_checkstring(L, 2);
    const double seconds = luaL_checknumber(L, 3);
    char answer[ANSWER_BYTES];
    size_t got = 0;
    const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        if (tcgetpgrp(fd) == getpgrp()) got = ask(fd, question, n, last[0], seconds, answer);
        close(fd);
    }
    lua_pushlstring(L, answer, got);
    return 1;
}

void bind_push_printable(lua_State *L, const char *text, size_t n, bool one_line) {
    const size_t length = mg_printable(text, n, one_line, NULL, 0);
    char *room = lua_newuserdata(L, length + 1);
    mg_printable(text, n, one_line, room, length + 1);
    lua_pushlstring(L, room, length);
    lua_remove(L, -2);
}

/* printable(text, one_line) -> the text with its control characters visible; see
 * core/printable.h. */
static int core_printable(lua_State *L) {
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    bind_push_printable(L, text, n, lua_toboolean(L, 2));
    return 1;
}

const luaL_Reg mg_bind_terminal[] = {{"columns", core_columns},
                                     {"terminal_size", core_terminal_size},
                                     {"terminal_ask", core_terminal_ask},
                                     {"printable", core_printable},
                                     {NULL, NULL}};
