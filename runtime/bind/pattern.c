/* Regular expressions in Lua: full_match. */
#include "bind/bind.h"
#include "core/status.h"
#include <regex.h>

enum { REASON_BYTES = 160 };

/* full_match(pattern, text) -> whether the whole text matches the POSIX extended regular
 * expression. Errors: a pattern that is none. */
static int core_full_match(lua_State *L) {
    const char *pattern = luaL_checkstring(L, 1), *text = luaL_checkstring(L, 2);
    const char *whole = lua_pushfstring(L, "^(%s)$", pattern);
    regex_t compiled;
    const int fault = regcomp(&compiled, whole, REG_EXTENDED | REG_NOSUB);
    if (fault) {
        char reason[REASON_BYTES];
        regerror(fault, &compiled, reason, sizeof reason);
        return bind_fail(L, MG_USAGE, "\"%.200s\" is no regular expression: %s", pattern, reason);
    }
    lua_pushboolean(L, regexec(&compiled, text, 0, NULL, 0) == 0);
    regfree(&compiled);
    return 1;
}

const luaL_Reg mg_bind_pattern[] = {{"full_match", core_full_match}, {NULL, NULL}};
