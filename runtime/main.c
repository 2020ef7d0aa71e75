/* The program: a superset of luajit's command line around the mgpu library.
 *
 * Options are gone through twice: first to find the script and what sort of run it is, then, inside
 * Lua, in order. Ctrl-C must stop compiled loops too: a debug hook alone never fires in them, but
 * with LuaJIT's profiler on they look at its flag. Its timer is switched off at once and Ctrl-C
 * ticks instead: a timer's signals would land in oneDNN's generated kernels, which keep values
 * below the stack pointer (seen as a corrupted heap). For the same reason Ctrl-C has a stack of its
 * own.
 */
#include "core/status.h"
#include "core/threads.h"
#include "device/device.h"
#include "program.h"

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define VERSION "0.1.0"

int luaopen_mgpu_core(lua_State *L);

enum { EXIT_INTERNAL = 70, EXIT_FILE = 74, EXIT_PEER = 76, EXIT_DEVICE = 77 };

typedef struct run_mode {
    char **argv;
    int argc, script; /* script: index in argv of its name; argc if none */
    bool interactive, no_env, version, executed, bytecode;
    const char *wrong; /* a usage error */
    int exit_status;
} run_mode;

static lua_State *running; /* for the signal handler */

static const char usage[] =
    "usage: mgpulua [options] [script [args]]\n"
    "  -e CHUNK        run a piece of Lua\n"
    "  -l NAME         require a library\n"
    "  -i              go to the prompt after the script\n"
    "  -v, --version   show the version\n"
    "  -E              ignore LUA_INIT, LUA_PATH and LUA_CPATH\n"
    "  -j CMD, -O OPT  control LuaJIT's compiler: -joff, -jv, -O3\n"
    "  -b ...          save or list bytecode\n"
    "  --devices LIST  devices to use, such as cpu:0-3 or cuda:0,1 or all of a kind: cuda\n"
    "  --list-devices  show the devices that are there\n"
    "  --doctor        show what is installed, what is missing, and try each device\n"
    "  --help          this text\n"
    "  --              no more options;  -  read the script from standard input\n";

/* ---- Lua pieces: each is called with the option's text --------------------------------------- */

static const char jit_command[] =
    "local name, options = (...):match '^([^=]*)=?(.*)$'\n"
    "local start = jit[name]\n"
    "if type(start) ~= 'function' then\n"
    "  local ok, module = pcall(require, 'jit.' .. name)\n"
    "  if not ok then error('unknown luaJIT command or jit.* modules not installed', 0) end\n"
    "  start = module.start\n"
    "end\n"
    "local list = {}\n"
    "for option in options:gmatch '[^,]+' do list[#list + 1] = option end\n"
    "start(unpack(list))\n";
static const char jit_optimizer[] =
    "local list = {}\n"
    "for option in (...):gmatch '[^,]+' do list[#list + 1] = option end\n"
    "require('jit.opt').start(unpack(list))\n";
static const char jit_bytecode[] = "require('jit.bcsave').start(unpack(arg))\n";
static const char require_global[] = "local name = ...; _G[name] = require(name)\n";
static const char set_devices[] = "require('mgpu.program').set_devices((...))\n";
static const char list_devices[] = "require('mgpu.program').list_devices()\n";
/* Short module names such as mgpu.layers; aliases.lua appends the searcher that finds them. */
static const char load_aliases[] = "table.insert(package.loaders, function(name)\n"
                                   "  if name:find '^mgpu%.' then require 'mgpu.aliases' end\n"
                                   "end)\n";
static const char doctor[] = "require('mgpu.program').doctor()\n";

/* ---- errors and signals ---------------------------------------------------------------------- */

/* Lua compares a tensor and a number without asking the tensor, so its message says nothing of it.
 */
static void explain_comparison(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    if (!strstr(message, "attempt to compare ") || !strstr(message, "userdata")) return;
    lua_pushliteral(L,
                    ": tensors are not ordered with < or <=: use :lt, :le, :gt or :ge, element by "
                    "element");
    lua_concat(L, 2);
}

/* As luajit: a message with __tostring, or a string with a traceback. */
static int add_traceback(lua_State *L) {
    if (!lua_isstring(L, 1)) {
        if (lua_isnoneornil(L, 1) || !luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1))
            return 1;
        lua_remove(L, 1);
    }
    lua_settop(L, 1);
    explain_comparison(L);
    luaL_traceback(L, L, lua_tostring(L, 1), 1);
    return 1;
}

static void stop(lua_State *L, lua_Debug *ar) {
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    if (!mg_interrupt_take()) return; /* a call into the library has already raised it */
    mg_fail(MG_INTERRUPTED, "interrupted!");
    luaL_error(L, "interrupted!");
}

static void stop_soon(lua_State *L) {
    lua_sethook(L, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* The second Ctrl-C, if the first is not answered, ends the process. */
static void on_interrupt(int signal_number) {
    signal(signal_number, SIG_DFL);
    mg_interrupt();
    stop_soon(running);
    raise(SIGPROF);
}

static void on_tick(void *data, lua_State *L, int samples, int vmstate) {
    (void)data, (void)samples, (void)vmstate;
    if (mg_interrupt_pending()) stop_soon(L);
}

int mg_program_call(lua_State *L, int n_args, int n_results) {
    int base = lua_gettop(L) - n_args;
    lua_pushcfunction(L, add_traceback);
    lua_insert(L, base);
    struct sigaction before;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_ONSTACK};
    running = L;
    sigaction(SIGINT, &action, &before);
    int status = lua_pcall(L, n_args, n_results, base);
    sigaction(SIGINT, &before, NULL);
    lua_remove(L, base);
    if (status) lua_gc(L, LUA_GCCOLLECT, 0);
    return status;
}

/* The exit status for a message: that of the library's last error, if the message is about it. */
static int exit_status_of(const char *message) {
    const char *last = mg_error_message();
    if (!last[0] || !strstr(message, last)) return EXIT_FAILURE;
    switch (mg_error_code()) {
    case MG_IO: return EXIT_FILE;
    case MG_COMM: return EXIT_PEER;
    case MG_DEVICE: return EXIT_DEVICE;
    case MG_INTERNAL: return EXIT_INTERNAL;
    default: return EXIT_FAILURE;
    }
}

int mg_program_report(lua_State *L, int status) {
    if (status == 0) return EXIT_SUCCESS;
    const char *message = lua_tostring(L, -1);
    if (!message && !lua_isnil(L, -1)) message = "(error object is not a string)";
    fflush(stdout);
    if (message) fprintf(stderr, "mgpulua: %s\n", message);
    fflush(stderr);
    int exit_status = message ? exit_status_of(message) : EXIT_FAILURE;
    lua_pop(L, 1);
    return exit_status;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* Calls the chunk just loaded, or reports why it did not load. */
static int run_loaded(lua_State *L, int status, const char *argument) {
    int n = 0;
    if (status == 0 && argument) lua_pushstring(L, argument), n = 1;
    if (status == 0) status = mg_program_call(L, n, 0);
    return mg_program_report(L, status);
}

static int run_text(lua_State *L, const char *text, const char *name, const char *argument) {
    return run_loaded(L, luaL_loadbuffer(L, text, strlen(text), name), argument);
}

static int run_init(lua_State *L) {
    const char *init = getenv("LUA_INIT");
    if (!init) return EXIT_SUCCESS;
    if (init[0] == '@') return run_loaded(L, luaL_loadfile(L, init + 1), NULL);
    return run_text(L, init, "=LUA_INIT", NULL);
}

/* The global table arg: the script at 0, its arguments after it, the rest at negative indexes. */
static void make_arg_table(lua_State *L, const run_mode *m) {
    int script = m->script < m->argc ? m->script : 0;
    lua_createtable(L, m->argc - script, script);
    for (int i = 0; i < m->argc; i++) {
        lua_pushstring(L, m->argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

static int run_script(lua_State *L, const run_mode *m) {
    const char *name = m->argv[m->script];
    if (strcmp(name, "-") == 0 && strcmp(m->argv[m->script - 1], "--") != 0) name = NULL;
    int status = luaL_loadfile(L, name), n = m->argc - m->script - 1;
    luaL_checkstack(L, n + 3, "too many arguments to script");
    for (int i = 0; status == 0 && i < n; i++) lua_pushstring(L, m->argv[m->script + 1 + i]);
    if (status == 0) status = mg_program_call(L, n, 0);
    return mg_program_report(L, status);
}

static void print_version(void) {
    printf("mgpulua " VERSION " -- " LUAJIT_VERSION "\n");
    fflush(stdout);
}

/* ---- where the Lua files are ----------------------------------------------------------------- */

/* The folder that holds lua/ and models/, as seen from the program's own place; false: nowhere. */
static bool find_root(char *root, size_t room) {
    /* build/mgpulua, build/<hash>/mgpulua, PREFIX/bin/mgpulua */
    static const char *const places[] = {"/..", "/../..", "/../share/mgpulua"};
    char self[1024], probe[1200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(probe, sizeof probe, "%s%s/lua/mgpu/init.lua", self, places[i]);
        if (access(probe, R_OK) != 0) continue;
        snprintf(probe, sizeof probe, "%s%s", self, places[i]);
        char *real = realpath(probe, NULL);
        bool fits = real && (size_t)snprintf(root, room, "%s", real) < room;
        free(real);
        return fits;
    }
    return false;
}

/* Puts our Lua files first on package.path, and the binding and the aliases where require finds
 * them. */
static void set_up_packages(lua_State *L) {
    char root[1024];
    lua_getglobal(L, "package");
    if (find_root(root, sizeof root)) {
        lua_getfield(L, -1, "path");
        lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", root, root, lua_tostring(L, -1));
        lua_setfield(L, -3, "path");
        lua_pop(L, 1);
        lua_pushstring(L, root);
        lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    }
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_mgpu_core);
    lua_setfield(L, -2, "mgpu.core");
    lua_pop(L, 2);
    if (luaL_dostring(L, load_aliases)) lua_pop(L, 1);
}

/* ---- the command line ------------------------------------------------------------------------ */

typedef struct program_option {
    const char *name, *code; /* code: Lua, run when the option's turn comes; NULL: handled in C */
    bool takes_value, alone; /* alone: runs instead of a script */
} program_option;

static const program_option long_options[] = {
    {"--devices", set_devices, .takes_value = true},
    {"--list-devices", list_devices, .alone = true},
    {"--doctor", doctor, .alone = true},
};

static const program_option *find_long(const char *name) {
    for (size_t i = 0; i < sizeof long_options / sizeof *long_options; i++)
        if (strcmp(long_options[i].name, name) == 0) return &long_options[i];
    return NULL;
}

/* Reads one `--name`; how many further arguments it takes, or -1. */
static int scan_long(run_mode *m, const char *name) {
    const program_option *option = find_long(name);
    if (option) {
        m->executed |= option->alone;
        return option->takes_value;
    }
    if (strcmp(name, "--version") == 0) {
        m->version = m->executed = true;
        return 0;
    }
    return -1;
}

/* Reads one `-x`; likewise. */
static int scan_short(run_mode *m, const char *option) {
    const char *rest = option + 2;
    switch (option[1]) {
    case 'i': m->interactive = m->version = true; return rest[0] ? -1 : 0;
    case 'v': m->version = m->executed = true; return rest[0] ? -1 : 0;
    case 'E': m->no_env = true; return rest[0] ? -1 : 0;
    case 'e': m->executed = true; return rest[0] == '\0';
    case 'l': return rest[0] == '\0';
    case 'j': return rest[0] == '\0';
    case 'O': return 0;
    case 'b': m->bytecode = true; return 0;
    default: return -1;
    }
}

/* Finds the script and what sort of run this is. */
static void scan(run_mode *m) {
    int i = 1;
    for (; i < m->argc && !m->bytecode; i++) {
        const char *a = m->argv[i];
        if (a[0] != '-' || a[1] == '\0') break;
        if (strcmp(a, "--") == 0) {
            i++;
            break;
        }
        int values = a[1] == '-' ? scan_long(m, a) : scan_short(m, a);
        if (values < 0 || i + values >= m->argc) {
            m->wrong = a;
            return;
        }
        i += values;
    }
    m->script = i;
}

/* Runs the options before the script, in order. */
static int run_options(lua_State *L, const run_mode *m) {
    for (int i = 1; i < m->script; i++) {
        const char *a = m->argv[i], *value = a + 2;
        int status = EXIT_SUCCESS;
        if (a[1] == '-') {
            const program_option *option = find_long(a);
            if (!option) continue;
            status =
                run_text(L, option->code, "=mgpulua", option->takes_value ? m->argv[++i] : NULL);
        } else if (strchr("elj", a[1])) {
            if (*value == '\0') value = m->argv[++i];
            if (a[1] == 'e') status = run_text(L, value, "=(command line)", NULL);
            if (a[1] == 'l') status = run_text(L, require_global, "=mgpulua", value);
            if (a[1] == 'j') status = run_text(L, jit_command, "=mgpulua", value);
        } else if (a[1] == 'O') {
            status = run_text(L, jit_optimizer, "=mgpulua", value);
        }
        if (status) return status;
    }
    return EXIT_SUCCESS;
}

/* luajit -b: the rest of the command line belongs to jit.bcsave. */
static int run_bytecode(lua_State *L, const run_mode *m) {
    lua_newtable(L);
    int n = 0, i = 1;
    while (strncmp(m->argv[i], "-b", 2) != 0) i++;
    if (m->argv[i][2]) {
        lua_pushfstring(L, "-%s", m->argv[i] + 2);
        lua_rawseti(L, -2, ++n);
    }
    for (i++; i < m->argc; i++) {
        lua_pushstring(L, m->argv[i]);
        lua_rawseti(L, -2, ++n);
    }
    lua_setglobal(L, "arg");
    return run_text(L, jit_bytecode, "=mgpulua", NULL);
}

static int run_all(lua_State *L, const run_mode *m) {
    int status = m->no_env ? EXIT_SUCCESS : run_init(L);
    if (status == EXIT_SUCCESS && m->bytecode) return run_bytecode(L, m);
    if (m->version) print_version();
    if (status == EXIT_SUCCESS) status = run_options(L, m);
    if (status) return status;
    bool has_script = m->script < m->argc;
    if (has_script) status = run_script(L, m);
    if (status && !m->interactive) return status;
    if (m->interactive) {
        mg_repl(L);
    } else if (!has_script && !m->executed) {
        if (!isatty(STDIN_FILENO)) return run_loaded(L, luaL_loadfile(L, NULL), NULL);
        print_version();
        mg_repl(L);
    }
    return status;
}

/* Compiled loops look at the profiler's flag, which only Ctrl-C sets. */
static void watch_for_interrupts(lua_State *L) {
    static char memory[1 << 16];
    const stack_t own = {.ss_sp = memory, .ss_size = sizeof memory};
    sigaltstack(&own, NULL);
    luaJIT_profile_start(L, "li10", on_tick, NULL);
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
}

static int protected_main(lua_State *L) {
    run_mode *m = lua_touserdata(L, 1);
    lua_settop(L, 0);
    if (m->no_env) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    lua_gc(L, LUA_GCSTOP, 0);
    luaL_openlibs(L);
    set_up_packages(L);
    make_arg_table(L, m);
    lua_gc(L, LUA_GCRESTART, -1);
    watch_for_interrupts(L);
    m->exit_status = run_all(L, m);
    return 0;
}

/* ---- the state --------------------------------------------------------------------------------
 */

/* With malloc beneath it, leak and address checkers see Lua's own memory. */
static void *plain_allocator(void *data, void *block, size_t old_size, size_t size) {
    (void)data, (void)old_size;
    if (size > 0) return realloc(block, size);
    free(block);
    return NULL;
}

static lua_State *new_state(void) {
#ifdef MG_ASAN
    bool plain = true;
#else
    bool plain = getenv("MGPU_MALLOC") != NULL;
#endif
    return plain ? lua_newstate(plain_allocator, NULL) : luaL_newstate();
}

int main(int argc, char **argv) {
    run_mode m = {.argv = argv, .argc = argc};
    scan(&m);
    if (m.wrong && strcmp(m.wrong, "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (m.wrong) {
        fprintf(stderr, "mgpulua: wrong option %s\n%s", m.wrong, usage);
        return EXIT_FAILURE;
    }
    lua_State *L = new_state();
    if (!L) {
        fputs("mgpulua: not enough memory for a Lua state\n", stderr);
        return EXIT_FAILURE;
    }
    atexit(mg_devices_close); /* after the state, or after os.exit() */
    int status = lua_cpcall(L, protected_main, &m);
    if (status) m.exit_status = mg_program_report(L, status);
    luaJIT_profile_stop(L);
    lua_close(L);
    return m.exit_status;
}
