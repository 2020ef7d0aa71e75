/* The program mgpulua: luajit's command line, and options of its own, around the mgpu library. */
#include "program/attach/attach.h"
#include "program/program.h"
#include "prompt/prompt.h"

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char jit_bytecode[] = "require('jit.bcsave').start(unpack(arg))\n";

/* Sets the global table `arg`: the script's name at 0, its arguments from 1 on, and the program and
 * its options at negative indexes. */
static void make_arg_table(lua_State *L, const mg_command_line *m) {
    int script = m->script < m->argc ? m->script : 0;
    lua_createtable(L, m->argc - script, script);
    for (int i = 0; i < m->argc; i++) {
        lua_pushstring(L, m->argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

/* `-` is standard input, unless it follows `--`. */
static int run_script(lua_State *L, const mg_command_line *m) {
    const char *name = m->argv[m->script];
    if (strcmp(name, "-") == 0 && strcmp(m->argv[m->script - 1], "--") != 0) name = NULL;
    int status = mg_main_load(L, name, m->trusted), n = m->argc - m->script - 1;
    luaL_checkstack(L, n + 3, "too many arguments to script");
    for (int i = 0; status == 0 && i < n; i++) lua_pushstring(L, m->argv[m->script + 1 + i]);
    if (status == 0) status = mg_main_call(L, n, 0);
    return mg_main_report(L, status);
}

static void print_version(void) {
    printf("mgpulua " MG_MAIN_VERSION " -- " LUAJIT_VERSION "\n");
    fflush(stdout);
}

/* luajit -b: jit.bcsave finds the rest of the command line in `arg`. */
static int run_bytecode(lua_State *L, const mg_command_line *m) {
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
    return mg_main_run_text(L, jit_bytecode, "=mgpulua", NULL);
}

/* Executes the command line, in luajit's order. Returns the exit status. */
static int run_all(lua_State *L, const mg_command_line *m) {
    if (m->attach) return mg_prompt_attach(L, m);
    int status = m->no_env ? EXIT_SUCCESS : mg_main_run_variable(L, "LUA_INIT");
    if (status == EXIT_SUCCESS && m->bytecode) return run_bytecode(L, m);
    if (m->version) print_version();
    if (status == EXIT_SUCCESS) status = mg_command_line_run(L, m);
    if (status) return status;
    bool has_script = m->script < m->argc;
    const bool prompts = m->interactive || (!has_script && !m->executed);
    if (has_script || prompts) mg_attach_listen(L, has_script ? m->argv[m->script] : "-");
    if (has_script) status = run_script(L, m);
    if (status && !m->interactive) return status;
    if (m->interactive) {
        const int ended = mg_prompt_run(L, !m->no_env);
        if (ended) status = ended;
    } else if (!has_script && !m->executed) {
        if (!isatty(STDIN_FILENO)) return mg_main_run(L, mg_main_load(L, NULL, m->trusted), NULL);
        print_version();
        status = mg_prompt_run(L, !m->no_env);
    }
    return status;
}

/* The argument of protected_main. */
typedef struct run_call {
    const mg_command_line *line;
    int exit_status;
} run_call;

/* The part of main that may raise Lua errors. */
static int protected_main(lua_State *L) {
    run_call *call = lua_touserdata(L, 1);
    const mg_command_line *m = call->line;
    lua_settop(L, 0);
    if (m->no_env) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    lua_gc(L, LUA_GCSTOP, 0);
    mg_main_open_libraries(L);
    if (!m->trusted && !m->bytecode) mg_main_refuse_bytecode(L);
    mg_main_set_up_packages(L);
    make_arg_table(L, m);
    lua_gc(L, LUA_GCRESTART, -1);
    mg_main_watch(L);
    call->exit_status = run_all(L, m);
    const int ended = mg_main_at_end(L);
    if (!call->exit_status) call->exit_status = ended;
    return 0;
}

/* Prints the error in the command line. */
static int refuse(const mg_command_line *m) {
    if (m->lacks)
        fprintf(stderr, "mgpulua: %s needs a value: %s %s\n%s", m->wrong, m->wrong, m->lacks,
                mg_command_line_usage);
    else
        fprintf(stderr, "mgpulua: wrong option %s%s\n%s", m->wrong,
                mg_command_line_suggestion(m->wrong), mg_command_line_usage);
    return EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (!mg_main_has_stack()) return EXIT_FAILURE;
    mg_command_line m = {.argv = argv, .argc = argc};
    mg_command_line_scan(&m);
    if (m.wrong && strcmp(m.wrong, "--help") == 0) {
        fputs(mg_command_line_usage, stdout);
        mg_main_end(EXIT_SUCCESS);
    }
    if (m.wrong) return refuse(&m);
    if (m.agent) return mg_agent_main();
    if (mg_launcher_wanted(&m)) return mg_launcher_run(&m);
    const int joined = mg_launcher_join(&m);
    if (joined) return joined;
    run_call call = {.line = &m};
    const int status = mg_main_in_state(protected_main, &call);
    if (status) call.exit_status = status;
    mg_main_end(call.exit_status);
}
