/* The listening socket of a job, and the thread's loop over its connections.
 *
 * Until the thread of report.c is there, which is made before the first step, SIGIO says that
 * somebody connects; its handler makes the script's thread call a hook, which makes that thread. */
#define _GNU_SOURCE /* accept4, struct ucred */
#include "program/attach/server.h"
#include "core/visit.h"
#include "program/attach/attach.h"
#include "program/attach/place.h"
#include "program/attach/visitors.h"
#include "program/program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int listener = -1, bell = -1;
static char path[MG_ATTACH_PATH]; /* of the socket */
static pid_t process;             /* that made it */
static pthread_t script_thread;
static const char *script_name;
static long long began;
static atomic_bool knocked, served; /* served: by the thread */

/* ---- the signal ---- */

static void on_io(int number) {
    (void)number;
    const int before = errno;
    if (!atomic_load(&served)) atomic_store(&knocked, true);
    if (pthread_equal(pthread_self(), script_thread) &&
        (mg_attach_wants_hook() || mg_main_report_wanted()))
        mg_main_hook_soon();
    errno = before;
}

bool mg_attach_knocked(void) {
    return atomic_load_explicit(&knocked, memory_order_relaxed);
}

void mg_attach_call_hook(void) {
    pthread_kill(script_thread, SIGIO);
}

void mg_attach_ring(void) {
    const uint64_t one = 1;
    if (write(bell, &one, sizeof one) < 0) return; /* it is ringing */
}

/* ---- the socket ---- */

/* It gets its name when it listens already, so a socket that refuses connections is that of a dead
 * process. */
static bool bind_in(const char *folder) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int n = snprintf(at.sun_path, sizeof at.sun_path, "%s/%d.new", folder, (int)getpid());
    if (n < 0 || (size_t)n + 1 >= sizeof at.sun_path) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    if (snprintf(path, sizeof path, "%s/%d.sock", folder, (int)getpid()) >= (int)sizeof path)
        return close(fd), false;
    const mode_t mask = umask(0177);
    unlink(at.sun_path);
    const bool bound = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    umask(mask);
    if (bound && listen(fd, MG_VISITORS) == 0 && rename(at.sun_path, path) == 0) {
        listener = fd;
        return true;
    }
    if (bound) unlink(at.sun_path);
    close(fd);
    return false;
}

static bool find_place(void) {
    char folder[MG_ATTACH_PATH];
    for (int i = 0; mg_attach_folder(i, getuid(), folder, sizeof folder); i++) {
        if (!mg_attach_folder_is_safe(folder, getuid(), true)) continue;
        mg_attach_tidy_up(folder);
        if (bind_in(folder)) return true;
    }
    return false;
}

void mg_attach_listen(lua_State *L, const char *script) {
    const char *wanted = getenv("MGPU_ATTACH");
    mg_main_report_open(); /* before the script counts its open files */
    if (listener >= 0 || (wanted && strcmp(wanted, "0") == 0)) return;
    process = getpid();
    script_thread = pthread_self();
    script_name = script;
    began = (long long)time(NULL);
    if (!find_place()) return;
    bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0) {
        mg_attach_stop();
        return;
    }
    mg_attach_visit_open(L);
    const struct sigaction action = {.sa_handler = on_io, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGIO, &action, NULL);
    fcntl(listener, F_SETOWN, process);
    fcntl(listener, F_SETFL, O_NONBLOCK | O_ASYNC);
}

/* The descriptors stay open: the thread may be waiting for them. */
void mg_attach_stop(void) {
    if (listener < 0 || getpid() != process || !*path) return;
    unlink(path);
    *path = 0;
}

/* ---- serving ---- */

/* The socket's mode keeps others out already, where the system heeds it. */
static bool may_connect(int fd) {
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           (peer.uid == getuid() || peer.uid == 0);
}

static void take_in(void) {
    for (int i = 0; i < MG_VISITORS; i++) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        if (!may_connect(fd) || !mg_visitors_add(fd)) close(fd);
    }
}

/* The thread is there: no signal is needed any more. */
static void begin(void) {
    atomic_store(&served, true);
    atomic_store(&knocked, false);
    if (listener >= 0) fcntl(listener, F_SETFL, O_NONBLOCK);
}

void mg_attach_serve(int wake) {
    enum { WAKE, BELL, LISTENER, VISITORS };
    struct pollfd list[VISITORS + MG_VISITORS];
    uint64_t rung;
    if (!atomic_load(&served)) begin();
    for (;;) {
        list[WAKE] = (struct pollfd){.fd = wake, .events = POLLIN};
        list[BELL] = (struct pollfd){.fd = bell, .events = POLLIN};
        list[LISTENER] = (struct pollfd){.fd = listener, .events = POLLIN};
        const int n = listener >= 0 ? mg_visitors_poll(list + VISITORS) : 0;
        if (poll(list, (nfds_t)(VISITORS + n), -1) < 0) continue;
        if (list[WAKE].revents) return;
        if (list[BELL].revents && read(bell, &rung, sizeof rung) < 0) continue;
        for (int i = 0; i < n; i++)
            if (list[VISITORS + i].revents) mg_visitors_serve(i, list[VISITORS + i].revents);
        if (list[LISTENER].revents) take_in();
    }
}

void mg_attach_close(void) {
    if (listener >= 0) mg_visitors_close();
}

size_t mg_server_state(char *text, size_t room, bool paused) {
    return mg_attach_state(text, room, script_name, began, paused);
}

size_t mg_server_where(char *text, size_t room) {
    return mg_main_where(text, room);
}
