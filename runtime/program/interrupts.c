/* Ctrl-C, SIGTERM and the limits on CPU time and file sizes as errors of the script.
 *
 * Ctrl-C must also stop loops that LuaJIT has compiled. A debug hook is never called in compiled
 * code, but while LuaJIT's profiler is on, compiled loops check a flag that its signal sets. So the
 * profiler is started with its timer disabled, and the handler of Ctrl-C raises the profiler's
 * signal. The timer must stay off, and the handler needs a stack of its own, because kernels that
 * oneDNN generates use memory below the stack pointer, or the stack pointer itself: a signal on the
 * normal stack corrupts it. */
#include "core/status.h"
#include "core/threads.h"
#include "program/attach/attach.h"
#include "program/program.h"
#include "world/launch.h"

#include <lauxlib.h>
#include <luajit.h>
#include <signal.h>
#include <stddef.h>
#include <sys/time.h>
#include <unistd.h>

static const double SECOND_INTERRUPT =
    2; /* seconds within which a second Ctrl-C ends the process */
/* In a process that a launcher started: seconds within which a second signal is the first one
 * again. Launchers and batch systems send a signal to all processes of a group, among them
 * launchers that pass it on. */
static const double SAME_INTERRUPT = 0.1;

static bool is_launched;

static lua_State *running;    /* the Lua thread that Ctrl-C stops; NULL: none runs */
static double last_interrupt; /* when it came; reset at each call */
static volatile sig_atomic_t n_interrupts;

/* The hook that the script itself has set. */
static struct script_hook {
    lua_Hook fn;
    int mask, count;
} script_hook;

int mg_main_interrupts(void) {
    return n_interrupts;
}

/* The debug hook that raises the error, tells a report where the code is, and stops the command of
 * an attached prompt. If a call into the
 * library has already reported the interrupt, there is nothing to raise. An error handler is not
 * interrupted: its error would replace the one that it handles. The code after it is. */
static void raise_interrupted(lua_State *L, lua_Debug *ar) {
    (void)ar;
    mg_main_report_lua(L);
    if (lua_status(L) == LUA_ERRERR) return;
    lua_sethook(L, script_hook.fn, script_hook.mask, script_hook.count);
    if (mg_attach_is_running() && mg_attach_take_cancel()) luaL_error(L, "interrupted!");
    if (!mg_interrupt_take()) return;
    mg_fail(MG_INTERRUPTED, "interrupted!");
    luaL_error(L, "interrupted!");
}

/* Interpreted code calls the hook at its next instruction, call or return. Safe in a signal
 * handler. */
static void stop_soon(lua_State *L) {
    const lua_Hook before = lua_gethook(L);
    if (before != raise_interrupted)
        script_hook = (struct script_hook){before, lua_gethookmask(L), lua_gethookcount(L)};
    lua_sethook(L, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* The profiler has no handler after a script has used and stopped it; SIGPROF would end the
 * process. */
void mg_main_hook_soon(void) {
    struct sigaction profiler;
    if (!running) return;
    stop_soon(running); /* for interpreted code */
    if (sigaction(SIGPROF, NULL, &profiler) == 0 && profiler.sa_handler != SIG_DFL)
        raise(SIGPROF); /* for compiled code: sets the profiler's flag, so on_tick is called */
}

static void interrupt(int signal_number) {
    n_interrupts = n_interrupts + 1;
    mg_interrupt_by(signal_number); /* for calls into the library */
    mg_main_hook_soon();
}

/* Ctrl-C or SIGTERM. A second signal ends the process at once if it comes soon after the first, or
 * if the script has not been stopped by the first. A script may ask to be told instead of being
 * interrupted, as a server does. */
static void on_interrupt(int signal_number) {
    const double now = mg_seconds();
    if (is_launched && now - last_interrupt < SAME_INTERRUPT) return;
    if (mg_interrupt_pending() || now - last_interrupt < SECOND_INTERRUPT)
        _exit(128 + signal_number);
    last_interrupt = now;
    if (mg_stop_takes_interrupts() && mg_stop_request(signal_number)) return;
    interrupt(signal_number);
}

/* SIGTERM or SIGUSR1. A training run that can save a checkpoint saves it and then ends; otherwise
 * SIGTERM acts like Ctrl-C, and SIGUSR1 has its default effect. */
static void on_stop(int signal_number) {
    if (mg_stop_request(signal_number)) return;
    if (signal_number == SIGTERM) {
        on_interrupt(signal_number);
    } else {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

/* SIGXCPU: the soft limit on CPU time is reached. A training run saves and stops, another script
 * gets an error, once: the kernel repeats the signal every second until the hard limit, at which it
 * kills the process, and the script may need that time to save. */
static void on_cpu_limit(int signal_number) {
    static volatile sig_atomic_t told;
    if (told || !running) return;
    told = 1;
    if (!mg_stop_request(signal_number)) interrupt(signal_number);
}

/* SIGXFSZ: the write that exceeds the limit on file sizes fails with EFBIG. A handler that does
 * nothing, because programs that the script starts would inherit SIG_IGN. */
static void on_file_limit(int signal_number) {
    (void)signal_number;
}

/* Called by the profiler when a compiled loop has seen its flag. */
static void on_tick(void *data, lua_State *L, int samples, int vmstate) {
    (void)data, (void)samples, (void)vmstate;
    if (mg_interrupt_pending() || mg_main_report_wanted() || mg_attach_wants_hook()) stop_soon(L);
}

void mg_main_watch(lua_State *L) {
    mg_launch launch;
    is_launched = mg_launch_find(&launch) == MG_OK && launch.size > 1;
    mg_error_clear();
    static char memory[1 << 16];
    const stack_t own = {.ss_sp = memory, .ss_size = sizeof memory};
    const int flags = SA_ONSTACK | SA_RESTART;
    sigaltstack(&own, NULL);
    luaJIT_profile_start(L, "li10", on_tick, NULL);
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    sigaction(SIGXCPU, &(struct sigaction){.sa_handler = on_cpu_limit, .sa_flags = flags}, NULL);
    sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = on_file_limit, .sa_flags = flags}, NULL);
}

int mg_main_call(lua_State *L, int n_args, int n_results) {
    int base = lua_gettop(L) - n_args;
    lua_pushcfunction(L, mg_main_traceback);
    lua_insert(L, base);
    static const struct handled {
        int number;
        void (*handler)(int);
    } signals[] = {{SIGINT, on_interrupt}, {SIGTERM, on_stop}, {SIGUSR1, on_stop}};
    struct sigaction before[3];
    lua_State *outer = running;
    running = L;
    last_interrupt = -SECOND_INTERRUPT;
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = signals[i].handler, .sa_flags = SA_ONSTACK};
        sigaction(signals[i].number, &action, &before[i]);
    }
    int status = lua_pcall(L, n_args, n_results, base);
    for (int i = 0; i < 3; i++) sigaction(signals[i].number, &before[i], NULL);
    running = outer;
    if (mg_interrupt_take())
        lua_sethook(L, NULL, 0, 0); /* it came too late: nothing is left to stop */
    lua_remove(L, base);
    if (status) lua_gc(L, LUA_GCCOLLECT, 0);
    return status;
}
