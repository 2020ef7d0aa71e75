/* The command line: the list of options, and executing them.
 *
 * It is read twice: mg_command_line_scan finds the script and sets flags; later, inside Lua,
 * mg_command_line_run executes the options in order. */
#include "core/status.h"
#include "program/program.h"

#include <lauxlib.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char mg_command_line_usage[] =
    "usage: mgpulua [options] [script [args]]\n"
    "  -e CHUNK        run a piece of Lua\n"
    "  -l NAME         require a library\n"
    "  -i              go to the prompt after the script\n"
    "  -v, --version   show the version\n"
    "  -E              ignore LUA_INIT, LUA_PATH and LUA_CPATH\n"
    "  -j CMD, -O OPT  control LuaJIT's compiler: -joff, -jv, -O3\n"
    "  -b ...          save or list bytecode\n"
    "  --bytecode      allow bytecode in the script and in chunks it loads\n"
    "  --devices LIST  devices to use, such as cpu:0-3 or cuda:0,1 or all of a kind: cuda\n"
    "  --np N          start the script as N processes that work together\n"
    "  -H LIST         on these hosts, with so many processes each: -H a:4,b:4\n"
    "  --hostfile FILE the same from a file: a slots=4 on each line, or a:4\n"
    "  --output WHICH  show what these print: rank0 (default; errors of all), all, or prefix\n"
    "  --nranks_per_gpu N\n"
    "                  let N processes of a host share a GPU\n"
    "  --restart N     start all processes again when one fails, at most N times\n"
    "  --elastic MIN:MAX\n"
    "                  go on without the hosts that are lost, with MIN to MAX processes\n"
    "  --resume DIR    save checkpoints of the script's training in DIR, and continue from there\n"
    "  --profile FILE  write what each thread and device did as a Chrome trace, and print a table\n"
    "  --dashboard[=PORT]\n"
    "                  show training while it runs, on a page for browsers of this machine\n"
    "  --prove N       compare the script's first training steps on 1 and on N processes\n"
    "  --selftest cluster\n"
    "                  measure processes and the links between them\n"
    "  --serve MODEL   answer predictions of a model file over HTTP; options of its own may "
    "follow:\n"
    "                  mgpulua --serve --help\n"
    "  --verify DIR    check the checkpoints in DIR\n"
    "  --attach [PID]  a prompt in the job PID, which goes on; -e CHUNK or a script: run these "
    "there\n"
    "  --ps            list your jobs, and what each of them is at; --ps=json: for programs\n"
    "  --runs [FOLDER] show the runs recorded in FOLDER (runs); --runs --help: its own options\n"
    "  --pack SCRIPT   make one program of a script, its modules, models and data (--pack --help)\n"
    "  --list-devices  show the devices of this machine\n"
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
static const char require_global[] = "local name = ...; _G[name] = require(name)\n";
static const char set_devices[] = "require('mgpu.program').set_devices((...))\n";
static const char list_devices[] = "require('mgpu.program').list_devices()\n";
static const char resume[] = "require('mgpu.program').set_resume((...))\n";
static const char verify[] = "require('mgpu.program').verify((...))\n";
static const char doctor[] = "require('mgpu.program').doctor()\n";
static const char selftest[] = "require('mgpu.program').selftest((...))\n";
static const char pack[] = "require('mgpu.program').pack((...))\n";
static const char runs[] = "require('mgpu.program').runs((...))\n";
static const char profile[] = "require('mgpu.program').set_profile((...))\n";
static const char serve[] = "require('mgpu.program').serve((...))\n";
static const char ps[] = "require('mgpu.attach.ps')((...))\n";
static const char dashboard[] = "require('mgpu.program').set_dashboard((...))\n";
static const char prove[] = "require('mgpu.program').prove((...))\n";

/* ---- reading and running --------------------------------------------------------------------- */

typedef struct program_option {
    const char *name, *code; /* code: Lua that carries the option out; NULL: C does */
    const char *value; /* name of its value, the next argument, in messages; NULL: it has none */
    size_t kept;       /* without code: where in mg_launch_options its value is kept */
    bool alone;        /* without a script the program ends after it */
    bool last;         /* all arguments that follow belong to it */
    bool optional;     /* its value is given as --name=value, or not at all */
} program_option;

#define KEPT(field) .kept = offsetof(mg_launch_options, field)

static const program_option long_options[] = {
    {"--devices", set_devices, .value = "LIST"},
    {"--list-devices", list_devices, .alone = true},
    {"--doctor", doctor, .alone = true},
    {"--resume", resume, .value = "DIR"},
    {"--verify", verify, .value = "DIR", .alone = true},
    {"--selftest", selftest, .value = "cluster", .alone = true},
    {"--ps", ps, .value = "json", .alone = true, .optional = true},
    {"--prove", prove, .value = "N"},
    {"--profile", profile, .value = "FILE"},
    {"--serve", serve, .value = "MODEL", .alone = true, .last = true},
    {"--dashboard", dashboard, .value = "PORT", .optional = true},
    {"--runs", runs, .alone = true, .last = true},
    {"--pack", pack, .value = "SCRIPT", .alone = true, .last = true},
    {"--np", .value = "N", KEPT(np)},
    {"-H", .value = "LIST", KEPT(hosts)},
    {"--hostfile", .value = "FILE", KEPT(host_file)},
    {"--output", .value = "rank0|all|prefix", KEPT(output)},
    {"--nranks_per_gpu", .value = "N", KEPT(ranks_per_gpu)},
    {"--restart", .value = "N", KEPT(restart)},
    {"--elastic", .value = "MIN:MAX", KEPT(elastic)},
};

static void keep(mg_command_line *m, const program_option *option, const char *value) {
    *(const char **)(void *)((char *)&m->launch + option->kept) = value;
}

/* The option of an argument, `--name`, `--name=value` or `-xvalue`. */
static const program_option *find_option(const char *argument) {
    const size_t length = argument[1] == '-' ? strcspn(argument, "=") : 2;
    for (size_t i = 0; i < sizeof long_options / sizeof *long_options; i++) {
        const char *name = long_options[i].name;
        if (strlen(name) == length && strncmp(name, argument, length) == 0) return &long_options[i];
    }
    return NULL;
}

/* The value in `--name=value` or `-xvalue`, or NULL. */
static const char *value_in(const char *argument) {
    if (argument[1] != '-') return argument[2] ? argument + 2 : NULL;
    const char *sign = strchr(argument, '=');
    return sign ? sign + 1 : NULL;
}

const char *mg_command_line_suggestion(const char *argument) {
    enum { KNOWN = sizeof long_options / sizeof *long_options };
    const char *names[KNOWN + 4] = {"--help", "--version", "--bytecode", "--attach"};
    for (int i = 0; i < KNOWN; i++) names[i + 4] = long_options[i].name;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    return mg_did_you_mean(name, names, KNOWN + 4);
}

/* Reads one `--name`. Returns how many further arguments are its value, or -1 for an unknown
 * option.
 */
static int scan_long(mg_command_line *m, const char *name) {
    const program_option *option = find_option(name);
    if (option) {
        m->executed |= option->alone;
        if (value_in(name)) return option->value || option->last ? 0 : -1;
        return option->value && !option->optional;
    }
    if (strncmp(name, "--attach", 8) == 0 && (!name[8] || name[8] == '=')) {
        m->attach = m->executed = true;
        m->job = value_in(name);
        return 0;
    }
    if (strcmp(name, "--bytecode") == 0) {
        m->trusted = true;
        return 0;
    }
    if (strcmp(name, "--agent") == 0) {
        m->agent = true;
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        m->version = m->executed = true;
        return 0;
    }
    return -1;
}

/* The same for one `-x`. The value may be part of the argument: -lname. */
static int scan_short(mg_command_line *m, const char *option) {
    const char *rest = option + 2;
    switch (option[1]) {
    case 'i': m->interactive = m->version = true; return rest[0] ? -1 : 0;
    case 'v': m->version = m->executed = true; return rest[0] ? -1 : 0;
    case 'E': m->no_env = true; return rest[0] ? -1 : 0;
    case 'e': m->executed = true; return rest[0] == '\0';
    case 'l': return rest[0] == '\0';
    case 'j': return rest[0] == '\0';
    case 'H': return rest[0] == '\0';
    case 'O': return 0;
    case 'b': m->bytecode = true; return 0;
    default: return -1;
    }
}

static int scan(mg_command_line *m, const char *argument) {
    return argument[1] == '-' ? scan_long(m, argument) : scan_short(m, argument);
}

/* Whether this is an option that C carries out. */
static bool is_kept(const char *argument) {
    const program_option *option = find_option(argument);
    return option && !option->code;
}

static bool is_last(const char *argument) {
    const program_option *option = find_option(argument);
    return option && option->last;
}

/* The name of the value that the option takes, for messages. */
static const char *value_of(const char *option) {
    const program_option *known = find_option(option);
    if (known) return known->value;
    return option[1] == 'e' ? "CHUNK" : option[1] == 'l' ? "NAME" : "CMD";
}

static bool is_number(const char *text) {
    return text && *text && text[strspn(text, "0123456789")] == 0;
}

void mg_command_line_scan(mg_command_line *m) {
    int i = 1;
    for (; i < m->argc && !m->bytecode; i++) {
        const char *a = m->argv[i];
        if (a[0] != '-' || a[1] == '\0') break;
        if (strcmp(a, "--") == 0) {
            i++;
            break;
        }
        const int values = scan(m, a);
        if (values < 0 || i + values >= m->argc) {
            m->wrong = a;
            if (values > 0) m->lacks = value_of(a);
            return;
        }
        if (is_last(a)) {
            m->script = m->argc;
            return;
        }
        if (m->attach && !m->job && strcmp(a, "--attach") == 0 && is_number(m->argv[i + 1]))
            m->job = m->argv[++i];
        if (is_kept(a)) keep(m, find_option(a), values ? m->argv[i + 1] : value_in(a));
        i += values;
    }
    m->script = i;
}

void mg_command_line_of_rank(const mg_command_line *m, char **to) {
    mg_command_line unused = {.argc = 0};
    int n = 0;
    to[n++] = m->argv[0];
    for (int i = 1; i < m->argc; i++) {
        const int values = i < m->script ? scan(&unused, m->argv[i]) : 0; /* of "--": -1 */
        const bool dropped = i < m->script && is_kept(m->argv[i]);
        const int last = values > 0 ? i + values : i;
        for (int k = i; k <= last && !dropped; k++) to[n++] = m->argv[k];
        i = last;
    }
    to[n] = NULL;
}

/* An option to which all further arguments belong: its code gets its place in `arg`. */
static int run_last(lua_State *L, const program_option *option, int position) {
    char number[16];
    snprintf(number, sizeof number, "%d", position);
    return mg_main_run_text(L, option->code, "=mgpulua", number);
}

void mg_command_line_push_chunks(lua_State *L, const mg_command_line *m) {
    lua_newtable(L);
    for (int i = 1; i < m->script; i++) {
        mg_command_line unused = {.argc = 0};
        const char *a = m->argv[i];
        const int values = a[0] == '-' ? scan(&unused, a) : 0; /* the number of --attach has none */
        if (a[0] == '-' && a[1] == 'e') {
            lua_pushstring(L, a[2] ? a + 2 : m->argv[i + 1]);
            lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
        }
        if (values > 0) i += values;
    }
}

int mg_command_line_run(lua_State *L, const mg_command_line *m) {
    for (int i = 1; i < m->script; i++) {
        const char *a = m->argv[i], *value = a + 2;
        int status = EXIT_SUCCESS;
        const program_option *option = find_option(a);
        if (option && option->last) return run_last(L, option, i);
        if (option) {
            value = value_in(a);
            if (option->value && !value && !option->optional) value = m->argv[++i];
            if (!option->code) continue;
            status = mg_main_run_text(L, option->code, "=mgpulua", value);
        } else if (a[1] != '-' && strchr("elj", a[1])) {
            if (*value == '\0') value = m->argv[++i];
            if (a[1] == 'e') status = mg_main_run_text(L, value, "=(command line)", NULL);
            if (a[1] == 'l') status = mg_main_run_text(L, require_global, "=mgpulua", value);
            if (a[1] == 'j') status = mg_main_run_text(L, jit_command, "=mgpulua", value);
        } else if (a[1] == 'O') {
            status = mg_main_run_text(L, jit_optimizer, "=mgpulua", value);
        }
        if (status) return status;
    }
    return EXIT_SUCCESS;
}
