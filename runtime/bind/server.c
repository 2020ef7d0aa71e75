/* The HTTP server in Lua (server/server.h).
 *
 *     local s = core.server { port = 0, requests = true }    -- s:port(), s:address(), s:clients()
 *     s:document("/", "text/html", page)       -- nil instead of the type: there is none any more
 *     s:append("/log", "a line\n", most)       -- most: bytes that are kept, or nil
 *     local r = s:take(seconds)                -- nil after that time, and if a stop was requested
 *     r:reply(200, "text/plain", "hello", { ["x-name"] = "value" })
 *     s:stop()                                 -- no further requests; those that came can be taken
 *     s:close(seconds)                         -- 5 unless given: for answers on their way
 *
 * A request r has the strings r.method, r.path and r.body, and the tables r.query and r.headers:
 * value by name, the last one of a name that is there twice; names of headers are in lower case. */
#include "bind/bind.h"
#include "server/server.h"
#include <limits.h>
#include <string.h>

#define BIND_SERVER "mgpu.server"
#define BIND_REQUEST "mgpu.request"

static const double CLOSING = 5; /* seconds */

typedef struct server {
    mg_server *open; /* owned; NULL: closed */
} server;

typedef struct request {
    mg_request *pending; /* owned; NULL: answered */
} request;

static mg_server *check_server(lua_State *L, const char *who) {
    const server *s = luaL_checkudata(L, 1, BIND_SERVER);
    if (!s->open) bind_fail(L, MG_USAGE, "%s: the server is closed", who);
    return s->open;
}

/* ---- opening and closing ---- */

/* A whole number from 0 to `most`; 0 if the option is not given. */
static double read_number(lua_State *L, const char *name, double most) {
    lua_getfield(L, 1, name);
    const double value = lua_tonumber(L, -1);
    const bool right = lua_isnil(L, -1) || (lua_type(L, -1) == LUA_TNUMBER && value >= 0 &&
                                            value <= most && value == (double)(int64_t)value);
    if (!right)
        bind_fail(L, MG_USAGE, "server: %s must be a whole number from 0 to %.0f", name, most);
    lua_pop(L, 1);
    return value;
}

/* NULL if the option is not given. It stays in the table. */
static const char *read_text(lua_State *L, const char *name) {
    lua_getfield(L, 1, name);
    if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING)
        bind_fail(L, MG_USAGE, "server: %s must be a string, got %s", name, luaL_typename(L, -1));
    size_t n = 0;
    const char *text = lua_tolstring(L, -1, &n);
    if (text && strlen(text) != n) bind_fail(L, MG_USAGE, "server: %s has a zero byte in it", name);
    lua_pop(L, 1);
    return text;
}

/* The option `names`; pushes memory. */
static void read_names(lua_State *L, mg_server_options *o) {
    lua_getfield(L, 1, "names");
    if (!lua_isnil(L, -1)) luaL_checktype(L, -1, LUA_TTABLE);
    o->n_names = lua_isnil(L, -1) ? 0 : (int)lua_objlen(L, -1);
    const char **names = lua_newuserdata(L, (size_t)(o->n_names + 1) * sizeof *names);
    for (int i = 0; i < o->n_names; i++) {
        lua_rawgeti(L, -2, i + 1);
        names[i] = luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    o->names = names;
}

/* server {host = "127.0.0.1", port = 0, token =, names =, requests = false, body = 64 MiB, headers
 * = 32 KiB, connections = 2048, idle = 60} -> server: see mg_server_options. */
static int core_server(lua_State *L) {
    static const char *const known[] = {"host", "port",    "token",       "names", "requests",
                                        "body", "headers", "connections", "idle"};
    lua_settop(L, 1);
    bind_check_options(L, 1, "server", known, sizeof known / sizeof *known);
    mg_server_options o = {
        .host = read_text(L, "host"),
        .token = read_text(L, "token"),
        .port = (int)read_number(L, "port", INT_MAX),
        .body_bytes = (size_t)read_number(L, "body", 1L << 40),
        .header_bytes = (size_t)read_number(L, "headers", 1 << 30),
        .connections = (int)read_number(L, "connections", 1 << 20),
        .idle_seconds = (int)read_number(L, "idle", 1 << 20),
    };
    lua_getfield(L, 1, "requests");
    o.has_requests = lua_toboolean(L, -1);
    read_names(L, &o);
    server *s = lua_newuserdata(L, sizeof *s);
    s->open = NULL;
    luaL_getmetatable(L, BIND_SERVER);
    lua_setmetatable(L, -2);
    s->open = mg_server_open(&o);
    if (!s->open) bind_raise(L);
    return 1;
}

static int server_port(lua_State *L) {
    lua_pushinteger(L, mg_server_port(check_server(L, "server:port")));
    return 1;
}

static int server_address(lua_State *L) {
    lua_pushstring(L, mg_server_address(check_server(L, "server:address")));
    return 1;
}

/* server:clients() -> how many connections are open. */
static int server_clients(lua_State *L) {
    lua_pushinteger(L, mg_server_clients(check_server(L, "server:clients")));
    return 1;
}

static int server_stop(lua_State *L) {
    mg_server_stop(check_server(L, "server:stop"));
    return 0;
}

/* server:close(seconds): harmless when it is closed. */
static int server_close(lua_State *L) {
    server *s = luaL_checkudata(L, 1, BIND_SERVER);
    const double seconds = luaL_optnumber(L, 2, CLOSING);
    mg_server *open = s->open;
    s->open = NULL;
    mg_server_close(open, seconds);
    return 0;
}

static int server_collect(lua_State *L) {
    server *s = luaL_checkudata(L, 1, BIND_SERVER);
    mg_server_close(s->open, CLOSING);
    s->open = NULL;
    return 0;
}

/* ---- documents and logs ---- */

/* server:document(path, type, bytes); server:document(path) removes it. */
static int server_document(lua_State *L) {
    mg_server *s = check_server(L, "server:document");
    const char *path = bind_path(L, 2, "server:document");
    size_t n = 0;
    const char *type = luaL_optstring(L, 3, NULL);
    const char *bytes = type ? luaL_checklstring(L, 4, &n) : NULL;
    bind_check(L, mg_server_document(s, path, type, bytes, n));
    return 0;
}

/* server:append(path, bytes, [most]). */
static int server_append(lua_State *L) {
    size_t n;
    mg_server *s = check_server(L, "server:append");
    const char *path = bind_path(L, 2, "server:append"), *bytes = luaL_checklstring(L, 3, &n);
    const double most = luaL_optnumber(L, 4, 0);
    if (!(most >= 0 && most < 1LL << 40))
        bind_fail(L, MG_USAGE, "server:append: the most bytes to keep are a number of at least 1");
    bind_check(L, mg_server_append(s, path, bytes, n, (size_t)most));
    return 0;
}

/* ---- requests ---- */

/* Pushes the table of the pairs. */
static void push_pairs(lua_State *L, const mg_pair *pairs, int n) {
    lua_createtable(L, 0, n);
    for (int i = 0; i < n; i++) {
        lua_pushlstring(L, pairs[i].name, pairs[i].name_bytes);
        lua_pushlstring(L, pairs[i].value, pairs[i].value_bytes);
        lua_rawset(L, -3);
    }
}

/* server:take(seconds) -> request or nil. */
static int server_take(lua_State *L) {
    mg_server *s = check_server(L, "server:take");
    const double seconds = luaL_checknumber(L, 2);
    lua_createtable(L, 0, 6);
    request *r = lua_newuserdata(L, sizeof *r);
    r->pending = NULL;
    luaL_getmetatable(L, BIND_REQUEST);
    lua_setmetatable(L, -2);
    bind_check(L, mg_server_take(s, seconds, &r->pending));
    if (!r->pending) lua_pushnil(L);
    if (!r->pending) return 1;
    lua_setfield(L, -2, "pending");
    const mg_request_parts *p = mg_request_get_parts(r->pending);
    lua_pushstring(L, p->method);
    lua_setfield(L, -2, "method");
    lua_pushstring(L, p->path);
    lua_setfield(L, -2, "path");
    lua_pushlstring(L, p->body_bytes ? p->body : "", p->body_bytes);
    lua_setfield(L, -2, "body");
    push_pairs(L, p->query, p->n_query);
    lua_setfield(L, -2, "query");
    push_pairs(L, p->headers, p->n_headers);
    lua_setfield(L, -2, "headers");
    luaL_getmetatable(L, BIND_REQUEST);
    lua_getfield(L, -1, "of_tables");
    lua_setmetatable(L, -3);
    lua_pop(L, 1);
    return 1;
}

/* Reads the headers of an answer. Pushes memory. */
static void read_headers(lua_State *L, int index, mg_answer *a) {
    int n = 0;
    if (lua_isnoneornil(L, index)) return;
    luaL_checktype(L, index, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) n++;
    mg_pair *pairs = lua_newuserdata(L, (size_t)(n + 1) * sizeof *pairs);
    a->headers = pairs;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) { /* the table keeps the texts */
        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
            bind_fail(L, MG_USAGE, "reply: names and values of headers are strings");
        pairs[a->n_headers++] =
            (mg_pair){.name = lua_tostring(L, -2), .value = lua_tostring(L, -1)};
    }
}

/* request:reply(status, type, bytes, [headers]): answers; a second time it is an error. */
static int request_reply(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 5);
    mg_answer a = {.status = (int)luaL_checkinteger(L, 2), .type = luaL_optstring(L, 3, NULL)};
    a.bytes = luaL_optlstring(L, 4, "", &a.n);
    read_headers(L, 5, &a);
    lua_getfield(L, 1, "pending");
    request *r = luaL_checkudata(L, -1, BIND_REQUEST);
    mg_request *pending = r->pending;
    if (!pending) bind_fail(L, MG_USAGE, "reply: the request was answered before");
    r->pending = NULL;
    bind_check(L, mg_request_reply(pending, &a));
    return 0;
}

/* A request that nobody has answered, because of an error for example. */
static int request_collect(lua_State *L) {
    static const char text[] = "{\"error\":\"the server could not answer\"}\n";
    request *r = luaL_checkudata(L, 1, BIND_REQUEST);
    mg_request *pending = r->pending;
    r->pending = NULL;
    if (pending)
        mg_request_reply(pending, &(mg_answer){.status = 500,
                                               .type = "application/json",
                                               .bytes = text,
                                               .n = sizeof text - 1});
    return 0;
}

const luaL_Reg mg_bind_server[] = {{"server", core_server}, {NULL, NULL}};

/* Requests are collected before servers or after them: both orders are right. */
void bind_open_server(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"port", server_port},         {"clients", server_clients}, {"address", server_address},
        {"document", server_document}, {"append", server_append},   {"take", server_take},
        {"stop", server_stop},         {"close", server_close},     {NULL, NULL}};
    luaL_newmetatable(L, BIND_SERVER);
    lua_newtable(L);
    bind_register(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, server_collect);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, BIND_REQUEST);
    lua_pushcfunction(L, request_collect);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L); /* the metatable of request tables */
    lua_newtable(L);
    lua_pushcfunction(L, request_reply);
    lua_setfield(L, -2, "reply");
    lua_setfield(L, -2, "__index");
    lua_setfield(L, -2, "of_tables");
    lua_pop(L, 1);
}
