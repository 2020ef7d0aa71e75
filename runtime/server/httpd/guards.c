/* Which requests are refused because of where they come from. */
#include "server/httpd/httpd.h"
#include <string.h>
#include <strings.h>
#include <unistd.h>

static void refuse(exchange *e, unsigned status, const char *reason) {
    e->status = status;
    e->reason = reason;
}

static const char *header(const exchange *e, const char *name) {
    return MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, name);
}

/* ---- the token ---- */

/* Takes equally long for all texts of a length. The right one is not empty. */
static bool is_equal(const char *given, const char *right) {
    const size_t n = strlen(given), expected = strlen(right);
    volatile unsigned char difference = n != expected;
    for (size_t i = 0; i < n; i++) difference |= (unsigned char)(given[i] ^ right[i % expected]);
    return !difference;
}

static bool has_token(const exchange *e) {
    static const char bearer[] = "Bearer ";
    const char *given = header(e, "Authorization");
    if (given)
        return strncasecmp(given, bearer, sizeof bearer - 1) == 0 &&
               is_equal(given + sizeof bearer - 1, e->server->token);
    given = MHD_lookup_connection_value(e->connection, MHD_GET_ARGUMENT_KIND, "token");
    return given && is_equal(given, e->server->token);
}

/* ---- the host ---- */

/* The bytes of a Host or an authority without its port: "[::1]:80" -> 5. */
static size_t name_bytes(const char *host) {
    return host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
}

/* Whether a Host, with or without a port, is this name. Of an address of IPv6, the brackets are not
 * compared. */
static bool is_name(const char *host, const char *name) {
    size_t n = name_bytes(host);
    if (host[0] == '[' && name[0] != '[' && n >= 2) host++, n -= 2;
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

/* A server that others can reach has names that it does not know; its token is what protects it. */
static bool accepts_host(const mg_server *s, const char *host) {
    static const char *const always[] = {"localhost", "127.0.0.1", "::1"};
    if (s->token && !s->is_loopback) return true;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (is_name(host, always[i])) return true;
    for (int i = 0; i < s->n_names; i++)
        if (is_name(host, s->names[i])) return true;
    return is_name(host, s->address);
}

/* Whether a page of another site sends the request: browsers then name that site. They also do so
 * when a page of ours posts, and the site is then the host. */
static bool is_foreign(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    return !authority || !host || strcasecmp(authority + 3, host) != 0;
}

void httpd_guard(exchange *e, const char *version, const char *method) {
    const char *host = header(e, "Host"), *origin = header(e, "Origin");
    const bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (e->has_zero)
        refuse(e, MHD_HTTP_BAD_REQUEST, "the first line has a zero byte (%00)");
    else if (!host && strcmp(version, "HTTP/1.1") == 0)
        refuse(e, MHD_HTTP_BAD_REQUEST, "the header Host is missing");
    else if (host && !accepts_host(e->server, host))
        refuse(e, MHD_HTTP_FORBIDDEN,
               "this server does not answer to the name in the header Host: use localhost or "
               "127.0.0.1");
    else if (origin && !reads && is_foreign(origin, host))
        refuse(e, MHD_HTTP_FORBIDDEN, "pages of other sites may not send this");
    else if (e->server->token && !has_token(e))
        refuse(e, MHD_HTTP_UNAUTHORIZED,
               "a token is needed: ?token=TOKEN, or the header Authorization: Bearer TOKEN");
}
