/* The program mgpulua: luajit's command line, and options of its own, around the mgpu library.
 *
 * The command line is read twice: first to find the script and what is to be done (scan), then,
 * inside Lua, to carry out the options in order (run_options).
 *
 * Ctrl-C must also stop loops that LuaJIT has compiled. A debug hook is never called in compiled
 * code, but while LuaJIT's profiler is on, compiled loops check a flag that its signal sets. So the
 * profiler is started with its timer disabled, and the handler of Ctrl-C raises the profiler's
 * signal. The timer must stay off, and the handler needs a stack of its own, because kernels that
 * oneDNN generates use memory below the stack pointer, or the stack pointer itself: a signal on the
 * normal stack corrupts it. */
#include "core/status.h"
#include "core/stop.h"
#include "core/threads.h"
#include "device/device.h"
#include "program.h"

#include <errno.h>
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

/* Exit statuses besides 0 and 1, by the code of the library's error. */
enum { EXIT_INTERNAL = 70, EXIT_FILE = 74, EXIT_SAVED = 75, EXIT_PEER = 76, EXIT_DEVICE = 77 };

/* What the command line asks for. */
typedef struct run_mode {
    char **argv;
    int argc, script;  /* script: index in argv of its name; argc if there is none */
    bool interactive;  /* -i: go to the prompt after the script */
    bool no_env;       /* -E: ignore the environment */
    bool version;      /* print the version */
    bool executed;     /* an option does something by itself: no prompt without a script */
    bool bytecode;     /* -b: the rest of the command line is for jit.bcsave */
    bool trusted;      /* --bytecode: the script may be bytecode */
    const char *wrong; /* an option that is unknown or lacks its value, or --help; NULL: none */
    int exit_status;   /* set by protected_main */
} run_mode;

static const double SECOND_INTERRUPT = 2; /* seconds: a second Ctrl-C so soon ends the process */

static lua_State *running; /* the Lua thread that Ctrl-C stops */

static const char usage[] =
    "usage: mgpulua [options] [script [args]]\n"
    "  -e CHUNK        run a piece of Lua\n"
    "  -l NAME         require a library\n"
    "  -i              go to the prompt after the script\n"
    "  -v, --version   show the version\n"
    "  -E              ignore LUA_INIT, LUA_PATH and LUA_CPATH\n"
    "  -j CMD, -O OPT  control LuaJIT's compiler: -joff, -jv, -O3\n"
    "  -b ...          save or list bytecode\n"
    "  --bytecode      let the script be bytecode, which is refused otherwise\n"
    "  --devices LIST  devices to use, such as cpu:0-3 or cuda:0,1 or all of a kind: cuda\n"
    "  --resume DIR    save checkpoints of the script's training in DIR, and continue from there\n"
    "  --verify DIR    check the checkpoints in DIR\n"
    "  --list-devices  show the devices that are there\n"
    "  --doctor        show what is installed, what is missing, and try each device\n"
    "  --help          this text\n"
    "  --              no more options;  -  read the script from standard input\n";

/* ---- options as pieces of Lua: each is called with the option's value --------------------------
 *
 * -j and -O are parsed as luajit's own front end does. */

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
static const char resume[] = "require('mgpu.program').set_resume((...))\n";
static const char verify[] = "require('mgpu.program').verify((...))\n";
static const char doctor[] = "require('mgpu.program').doctor()\n";

/* ---- errors and signals ---------------------------------------------------------------------- */

/* Lua does not ask tensors when `<` compares one with a number, so its message cannot name the
 * remedy: adds it to the message at index 1. */
static void explain_comparison(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    if (!strstr(message, "attempt to compare ") || !strstr(message, "userdata")) return;
    lua_pushliteral(L,
                    ": tensors are not ordered with < or <=: use :lt, :le, :gt or :ge, element by "
                    "element");
    lua_concat(L, 2);
}

/* Whether the message is the library's last error. */
static bool is_last_error(const char *message) {
    const char *last = mg_error_message();
    return last[0] && strstr(message, last);
}

/* Whether the message is that of a training that a signal has ended after a save. */
static bool is_stop_after_save(const char *message) {
    return mg_stop_saved() && mg_error_code() == MG_INTERRUPTED && is_last_error(message);
}

/* The error handler, as luajit's: appends a traceback to messages that are strings or have
 * __tostring, and leaves other error values alone. A stop after a save is no mistake of the script:
 * it gets none. */
static int add_traceback(lua_State *L) {
    if (!lua_isstring(L, 1)) {
        if (lua_isnoneornil(L, 1) || !luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1))
            return 1;
        lua_remove(L, 1);
    }
    lua_settop(L, 1);
    if (is_stop_after_save(lua_tostring(L, 1))) return 1;
    explain_comparison(L);
    luaL_traceback(L, L, lua_tostring(L, 1), 1);
    return 1;
}

/* The debug hook that raises the error. If a call into the library has answered the interrupt
 * meanwhile, there is nothing left to raise. */
static void raise_interrupted(lua_State *L, lua_Debug *ar) {
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    if (!mg_interrupt_take()) return;
    mg_fail(MG_INTERRUPTED, "interrupted!");
    luaL_error(L, "interrupted!");
}

/* Interpreted code calls the hook at its next instruction, call or return. Safe in a signal
 * handler. */
static void stop_soon(lua_State *L) {
    lua_sethook(L, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* Ctrl-C or SIGTERM. A second one ends the process at once if it comes soon after the first, or if
 * the first has not been answered by then. */
static void on_interrupt(int signal_number) {
    static double last = -SECOND_INTERRUPT;
    const double now = mg_seconds();
    if (mg_interrupt_pending() || now - last < SECOND_INTERRUPT) _exit(128 + signal_number);
    last = now;
    mg_interrupt_by(signal_number); /* for calls into the library */
    stop_soon(running);             /* for interpreted code */
    raise(SIGPROF); /* for compiled code: sets the profiler's flag, so on_tick is called */
}

/* SIGTERM or SIGUSR1. A training that can save does so and then ends; otherwise SIGTERM is like
 * Ctrl-C, and SIGUSR1 does what it does to other programs. */
static void on_stop(int signal_number) {
    if (mg_stop_request(signal_number)) return;
    if (signal_number == SIGTERM) {
        on_interrupt(signal_number);
    } else {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

/* Called by the profiler when a compiled loop has seen its flag. */
static void on_tick(void *data, lua_State *L, int samples, int vmstate) {
    (void)data, (void)samples, (void)vmstate;
    if (mg_interrupt_pending()) stop_soon(L);
}

int mg_program_call(lua_State *L, int n_args, int n_results) {
    int base = lua_gettop(L) - n_args;
    lua_pushcfunction(L, add_traceback);
    lua_insert(L, base);
    static const struct handled {
        int number;
        void (*handler)(int);
    } signals[] = {{SIGINT, on_interrupt}, {SIGTERM, on_stop}, {SIGUSR1, on_stop}};
    struct sigaction before[3];
    running = L;
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = signals[i].handler, .sa_flags = SA_ONSTACK};
        sigaction(signals[i].number, &action, &before[i]);
    }
    int status = lua_pcall(L, n_args, n_results, base);
    for (int i = 0; i < 3; i++) sigaction(signals[i].number, &before[i], NULL);
    lua_remove(L, base);
    if (status) lua_gc(L, LUA_GCCOLLECT, 0);
    return status;
}

/* The exit status for a Lua error message: by the code of the library's last error if the message
 * contains that error, else 1. */
static int exit_status_of(const char *message) {
    if (!is_last_error(message)) return EXIT_FAILURE;
    switch (mg_error_code()) {
    case MG_IO: return EXIT_FILE;
    case MG_COMM: return EXIT_PEER;
    case MG_DEVICE: return EXIT_DEVICE;
    case MG_INTERNAL: return EXIT_INTERNAL;
    case MG_INTERRUPTED:
        if (mg_stop_saved()) return EXIT_SAVED;
        return mg_interrupt_signal() ? 128 + mg_interrupt_signal() : EXIT_FAILURE;
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
    if (status == LUA_ERRFILE) exit_status = EXIT_FILE; /* the script cannot be read */
    lua_pop(L, 1);
    return exit_status;
}

/* ---- running chunks -------------------------------------------------------------------------- */

/* Calls the chunk on top of the stack, which has been loaded with this Lua status, or reports why
 * it did not load. Returns the exit status. */
static int run_loaded(lua_State *L, int status, const char *argument) {
    int n = 0;
    if (status == 0 && argument) lua_pushstring(L, argument), n = 1;
    if (status == 0) status = mg_program_call(L, n, 0);
    return mg_program_report(L, status);
}

static int run_text(lua_State *L, const char *text, const char *name, const char *argument) {
    return run_loaded(L, luaL_loadbuffer(L, text, strlen(text), name), argument);
}

/* luaL_loadfile for text. Bytecode is not checked when it is loaded, and wrong bytecode can do
 * anything to the process: it is loaded only where the user asks for it. */
static int load_file(lua_State *L, const char *name, bool trusted) {
    const int status = luaL_loadfilex(L, name, trusted ? NULL : "t");
    if (status && strstr(lua_tostring(L, -1), "wrong mode")) {
        lua_pop(L, 1);
        lua_pushfstring(L,
                        "%s is bytecode, which is not checked and can do anything: give --bytecode "
                        "before the script if you trust it",
                        name ? name : "standard input");
    }
    return status;
}

/* LUA_INIT: a chunk, or the name of a file after `@`. */
static int run_init(lua_State *L) {
    const char *init = getenv("LUA_INIT");
    if (!init) return EXIT_SUCCESS;
    if (init[0] == '@') return run_loaded(L, load_file(L, init + 1, false), NULL);
    return run_text(L, init, "=LUA_INIT", NULL);
}

/* Sets the global table `arg`: the script's name at 0, its arguments from 1 on, and what stands
 * before the script at negative indexes. */
static void make_arg_table(lua_State *L, const run_mode *m) {
    int script = m->script < m->argc ? m->script : 0;
    lua_createtable(L, m->argc - script, script);
    for (int i = 0; i < m->argc; i++) {
        lua_pushstring(L, m->argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

/* `-` is standard input, unless it stands after `--`. */
static int run_script(lua_State *L, const run_mode *m) {
    const char *name = m->argv[m->script];
    if (strcmp(name, "-") == 0 && strcmp(m->argv[m->script - 1], "--") != 0) name = NULL;
    int status = load_file(L, name, m->trusted), n = m->argc - m->script - 1;
    luaL_checkstack(L, n + 3, "too many arguments to script");
    for (int i = 0; status == 0 && i < n; i++) lua_pushstring(L, m->argv[m->script + 1 + i]);
    if (status == 0) status = mg_program_call(L, n, 0);
    return mg_program_report(L, status);
}

static void print_version(void) {
    printf("mgpulua " VERSION " -- " LUAJIT_VERSION "\n");
    fflush(stdout);
}

/* ---- the end of the process ------------------------------------------------------------------ */

/* Ends the process. Output that could not be written, to a full disk for example, must not look
 * like success. A thread that still computes, after Ctrl-C or on a lost device, may use what the
 * libraries free at exit: then nothing is freed. */
static void end_process(int status) {
    errno = 0;
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written) {
        fprintf(stderr, "mgpulua: cannot write to standard output: %s\n",
                errno ? strerror(errno) : "a write failed");
        if (status == EXIT_SUCCESS) status = EXIT_FILE;
    }
    mg_devices_close();
    if (!written || mg_device_first()) {
        fflush(NULL);
        _exit(status);
    }
    exit(status);
}

/* os.exit([status [, close]]), as luajit's. */
static int program_exit(lua_State *L) {
    const int status = lua_isboolean(L, 1) ? (lua_toboolean(L, 1) ? EXIT_SUCCESS : EXIT_FAILURE)
                                           : (int)luaL_optinteger(L, 1, EXIT_SUCCESS);
    if (lua_toboolean(L, 2)) lua_close(L);
    end_process(status);
    return 0;
}

/* ---- finding the Lua files ------------------------------------------------------------------- */

/* Writes the folder that holds lua/ and models/ to `root`: it is searched for relative to the
 * program file, so that a build folder and an installed prefix both work from anywhere. */
static bool find_root(char *root, size_t room) {
    /* for build/mgpulua, build/<hash>/mgpulua, and PREFIX/bin/mgpulua */
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

/* Puts mgpu's Lua files first on package.path, and the C binding and the aliases of modules into
 * package.preload. */
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
    const char *name, *code; /* code: Lua that carries the option out */
    bool takes_value;        /* the next argument is its value */
    bool alone;              /* without a script the program ends after it */
} program_option;

static const program_option long_options[] = {
    {"--devices", set_devices, .takes_value = true},
    {"--list-devices", list_devices, .alone = true},
    {"--doctor", doctor, .alone = true},
    {"--resume", resume, .takes_value = true},
    {"--verify", verify, .takes_value = true, .alone = true},
};

static const program_option *find_long(const char *name) {
    for (size_t i = 0; i < sizeof long_options / sizeof *long_options; i++)
        if (strcmp(long_options[i].name, name) == 0) return &long_options[i];
    return NULL;
}

/* Reads one `--name`. Returns how many further arguments are its value, or -1 for an unknown
 * option.
 */
static int scan_long(run_mode *m, const char *name) {
    const program_option *option = find_long(name);
    if (option) {
        m->executed |= option->alone;
        return option->takes_value;
    }
    if (strcmp(name, "--bytecode") == 0) {
        m->trusted = true;
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        m->version = m->executed = true;
        return 0;
    }
    return -1;
}

/* The same for one `-x`. A value may stand in the same argument: -lname. */
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

/* Fills in the run mode from the command line, without running anything. */
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

/* Carries out the options before the script, in order. Returns the exit status of the first that
 * fails. */
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

/* luajit -b: jit.bcsave finds the rest of the command line in `arg`. */
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

/* Everything that the command line asks for, in luajit's order. Returns the exit status. */
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
        if (!isatty(STDIN_FILENO)) return run_loaded(L, load_file(L, NULL, m->trusted), NULL);
        print_version();
        mg_repl(L);
    }
    return status;
}

/* Starts the profiler without its timer, and gives signal handlers a stack: see the file's header.
 */
static void watch_for_interrupts(lua_State *L) {
    static char memory[1 << 16];
    const stack_t own = {.ss_sp = memory, .ss_size = sizeof memory};
    sigaltstack(&own, NULL);
    luaJIT_profile_start(L, "li10", on_tick, NULL);
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
}

/* The part of main that may raise Lua errors. */
static int protected_main(lua_State *L) {
    run_mode *m = lua_touserdata(L, 1);
    lua_settop(L, 0);
    if (m->no_env) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    lua_gc(L, LUA_GCSTOP, 0);
    luaL_openlibs(L);
    lua_getglobal(L, "os");
    lua_pushcfunction(L, program_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
    set_up_packages(L);
    make_arg_table(L, m);
    lua_gc(L, LUA_GCRESTART, -1);
    watch_for_interrupts(L);
    m->exit_status = run_all(L, m);
    return 0;
}

/* ---- the Lua state --------------------------------------------------------------------------- */

/* An allocator on top of malloc: leak and address checkers then see Lua's own memory. */
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
        fprintf(stderr, "mgpulua: %s %s\n%s",
                strcmp(m.wrong, "--profile") == 0 ? "not built yet:" : "wrong option", m.wrong,
                usage);
        return EXIT_FAILURE;
    }
    lua_State *L = new_state();
    if (!L) {
        fputs("mgpulua: not enough memory for a Lua state\n", stderr);
        return EXIT_FAILURE;
    }
    int status = lua_cpcall(L, protected_main, &m);
    if (status) m.exit_status = mg_program_report(L, status);
    luaJIT_profile_stop(L);
    lua_close(L);
    end_process(m.exit_status);
}
