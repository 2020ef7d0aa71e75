/* The other side of a job's socket: mgpu.attach.link, for `mgpulua --attach` and --ps.
 *
 *     link.folders([pid]) -> array of the folders where jobs have their sockets: this user's, or
 *                            those of the user of the process
 *     link.jobs()         -> array of {pid =, path =}: the sockets of this user. Those of dead
 *                            processes are removed
 *     link.owner(pid)     -> whether the process is there, the name of its user if that is another
 *     link.connect(path)  -> a connection; or nil and why: "refused", "missing", "busy" or a reason
 *     c:send(kind, body)  -> whether the job takes it. kind: "run", "where" ...
 *     c:receive(seconds)  -> kind, body; or nil and why: "time", "closed", "damaged", or "version"
 *                            and the version of the other side. Raises "interrupted" after Ctrl-C
 *     c:close()
 *     link.columns()      -> the width of the terminal, 0 without one
 */
#define _GNU_SOURCE
#include "bind/bind.h"
#include "core/threads.h"
#include "program/attach/attach.h"
#include "program/attach/place.h"
#include "program/attach/record.h"

#include <dirent.h>
#include <errno.h>
#include <lauxlib.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LINK[] = "mgpu.attach.link";
static const double SEND_WITHIN = 10; /* seconds */

typedef struct attach_link {
    int fd; /* -1: closed */
    mg_attach_reader reader;
} attach_link;

static const char *const kinds[MG_ATTACH_KINDS + 1] = {
    [MG_ATTACH_STATE] = "state",       [MG_ATTACH_WHERE] = "where",   [MG_ATTACH_RUN] = "run",
    [MG_ATTACH_COMPLETE] = "complete", [MG_ATTACH_CANCEL] = "cancel", [MG_ATTACH_PAUSE] = "pause",
    [MG_ATTACH_CONTINUE] = "continue", [MG_ATTACH_HELLO] = "hello",   [MG_ATTACH_TOLD] = "told",
    [MG_ATTACH_OUTPUT] = "output",     [MG_ATTACH_ERRORS] = "errors", [MG_ATTACH_DONE] = "done",
};

/* ---- finding jobs ---- */

/* The user of a process; false: there is no such process. */
static bool user_of(pid_t process, uid_t *user) {
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d", (int)process);
    if (stat(path, &about) != 0) return false;
    *user = about.st_uid;
    return true;
}

static int link_folders(lua_State *L) {
    char path[MG_ATTACH_PATH];
    uid_t user = getuid();
    if (!lua_isnoneornil(L, 1)) user_of((pid_t)luaL_checkinteger(L, 1), &user);
    lua_newtable(L);
    for (int i = 0, n = 0; mg_attach_folder(i, user, path, sizeof path); i++) {
        if (!mg_attach_folder_is_safe(path, user, false)) continue;
        lua_pushstring(L, path);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* Appends the jobs in the folder to the table on top of the stack. */
static void add_jobs(lua_State *L, const char *folder) {
    DIR *open = opendir(folder);
    if (!open) return;
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;) {
        const pid_t process = mg_attach_process_of(entry->d_name);
        if (!process) continue;
        lua_createtable(L, 0, 2);
        lua_pushinteger(L, process);
        lua_setfield(L, -2, "pid");
        lua_pushfstring(L, "%s/%s", folder, entry->d_name);
        lua_setfield(L, -2, "path");
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
    closedir(open);
}

static int link_jobs(lua_State *L) {
    char path[MG_ATTACH_PATH];
    lua_newtable(L);
    for (int i = 0; mg_attach_folder(i, getuid(), path, sizeof path); i++) {
        if (!mg_attach_folder_is_safe(path, getuid(), false)) continue;
        mg_attach_tidy_up(path);
        add_jobs(L, path);
    }
    return 1;
}

static int link_owner(lua_State *L) {
    uid_t user;
    if (!user_of((pid_t)luaL_checkinteger(L, 1), &user)) return lua_pushboolean(L, false), 1;
    lua_pushboolean(L, true);
    if (user == getuid()) return 1;
    const struct passwd *entry = getpwuid(user);
    if (entry)
        lua_pushstring(L, entry->pw_name);
    else
        lua_pushfstring(L, "number %d", (int)user);
    return 2;
}

/* ---- a connection ---- */

static int link_connect(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    attach_link *c = lua_newuserdata(L, sizeof *c);
    *c = (attach_link){.fd = -1};
    luaL_getmetatable(L, LINK);
    lua_setmetatable(L, -2);
    c->fd = mg_attach_connect(path);
    if (c->fd >= 0) return 1;
    lua_pushnil(L);
    switch (errno) {
    case ECONNREFUSED: lua_pushliteral(L, "refused"); break;
    case ENOENT: lua_pushliteral(L, "missing"); break;
    case EAGAIN: lua_pushliteral(L, "busy"); break;
    default: lua_pushstring(L, strerror(errno));
    }
    return 2;
}

static attach_link *check_link(lua_State *L) {
    return luaL_checkudata(L, 1, LINK);
}

/* Waits for the socket; false after `until`. Ctrl-C raises. */
static bool await(lua_State *L, const attach_link *c, short events, double until) {
    for (;;) {
        const double left = until - mg_seconds();
        struct pollfd one = {.fd = c->fd, .events = events};
        const int n = poll(&one, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (n > 0) return true;
        bind_poll(L);
        if (n == 0 || errno != EINTR) return false;
    }
}

static bool send_all(lua_State *L, attach_link *c, const void *bytes, size_t n) {
    const double until = mg_seconds() + SEND_WITHIN;
    const char *from = bytes;
    while (n > 0) {
        if (c->fd < 0) return false;
        const ssize_t done = send(c->fd, from, n, MSG_NOSIGNAL);
        if (done > 0) {
            from += done;
            n -= (size_t)done;
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            return false;
        } else if (!await(L, c, POLLOUT, until)) {
            return false;
        }
    }
    return true;
}

static int link_send(lua_State *L) {
    attach_link *c = check_link(L);
    const int kind = luaL_checkoption(L, 2, NULL, kinds);
    size_t n;
    const char *body = luaL_optlstring(L, 3, "", &n);
    uint8_t head[MG_ATTACH_HEAD];
    if (n > MG_ATTACH_MOST)
        return bind_fail(L, MG_USAGE, "an attached prompt runs at most %d KiB at a time",
                         MG_ATTACH_MOST >> 10);
    mg_attach_head(head, (mg_attach_kind)kind, n);
    lua_pushboolean(L, send_all(L, c, head, sizeof head) && send_all(L, c, body, n));
    return 1;
}

static int refuse(lua_State *L, const char *why) {
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

static int link_receive(lua_State *L) {
    attach_link *c = check_link(L);
    const double until = mg_seconds() + luaL_checknumber(L, 2);
    bool complete = false;
    while (!complete) {
        size_t wanted;
        if (c->fd < 0) return refuse(L, "closed");
        void *to = mg_attach_room(&c->reader, &wanted);
        const ssize_t n = recv(c->fd, to, wanted, 0);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            if (!await(L, c, POLLIN, until)) return refuse(L, "time");
            continue;
        }
        if (n <= 0) return refuse(L, "closed");
        const mg_status status = mg_attach_received(&c->reader, (size_t)n, &complete);
        if (status == MG_OK) continue;
        refuse(L, status == MG_UNSUPPORTED ? "version" : "damaged");
        lua_pushinteger(L, c->reader.version);
        return 3;
    }
    lua_pushstring(L, kinds[mg_attach_kind_of(&c->reader)]);
    lua_pushlstring(L, (const char *)c->reader.body, c->reader.bytes);
    mg_attach_next(&c->reader);
    return 2;
}

static int link_close(lua_State *L) {
    attach_link *c = check_link(L);
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    mg_attach_reader_free(&c->reader);
    return 0;
}

static int link_columns(lua_State *L) {
    struct winsize size = {0};
    const bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    lua_pushinteger(L, !known ? 0 : size.ws_col ? size.ws_col : 80);
    return 1;
}

int mg_attach_open_link(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"send", link_send}, {"receive", link_receive}, {"close", link_close}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"folders", link_folders}, {"jobs", link_jobs},
                                         {"owner", link_owner},     {"connect", link_connect},
                                         {"columns", link_columns}, {NULL, NULL}};
    luaL_newmetatable(L, LINK);
    lua_pushcfunction(L, link_close);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    bind_register(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    bind_register(L, functions);
    return 1;
}
