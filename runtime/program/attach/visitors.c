/* Connections, their commands and their buffers: see visitors.h. */
#include "program/attach/visitors.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "core/visit.h"
#include "program/attach/attach.h"
#include "program/attach/server.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes that wait for the other side to read them. Behind that, output of commands is dropped. */
enum { MOST_WAITING = 4 << 20, MOST_GONE = 64 };

typedef enum visitor_state { IDLE, ASKED, RUNNING } visitor_state;

typedef struct visitor {
    bool open;
    int fd;
    unsigned id, turn; /* turn: of the command */
    mg_attach_reader reader;
    uint8_t *out; /* what is to be sent: from at_out to n_out */
    size_t n_out, at_out, room_out;
    bool cut;     /* output of the command was dropped */
    bool pausing; /* wants the job to stand still */
    bool known;   /* it has run a command: Lua keeps a session for it */
    visitor_state state;
    mg_command command;
} visitor;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static visitor visitors[MG_VISITORS];
static unsigned last_id, last_turn;
static unsigned gone[MOST_GONE];
static int n_gone;
/* cancel: the hook is to stop the command; cancelled: it was asked to, for its result. */
static atomic_bool cancel, cancelled;

static void set_up(void) {
    mg_cond_init(&changed);
}

/* With the lock: whether the script's thread has something to do. */
static void set_flag(void) {
    bool wanted = n_gone > 0;
    for (int i = 0; i < MG_VISITORS; i++)
        wanted |= visitors[i].state == ASKED || visitors[i].pausing;
    atomic_store(&mg_visit_flag, wanted);
    pthread_cond_broadcast(&changed);
}

/* ---- sending ---- */

/* With the lock: makes room for a whole record, since a part of one would be taken for others.
 * Without memory the connection is shut down, which its other side and poll notice. */
static bool make_room(visitor *v, size_t n) {
    if (!v->open) return false;
    if (v->at_out) memmove(v->out, v->out + v->at_out, v->n_out - v->at_out);
    v->n_out -= v->at_out;
    v->at_out = 0;
    if (v->n_out + n <= v->room_out) return true;
    const size_t room = 2 * (v->n_out + n);
    uint8_t *more = mg_realloc(v->out, room);
    if (more) {
        v->out = more;
        v->room_out = room;
        return true;
    }
    v->n_out = 0;
    shutdown(v->fd, SHUT_RDWR);
    return false;
}

static void keep(visitor *v, const void *bytes, size_t n) {
    if (n) memcpy(v->out + v->n_out, bytes, n);
    v->n_out += n;
}

static void keep_record(visitor *v, mg_attach_kind kind, const void *body, size_t n) {
    uint8_t head[MG_ATTACH_HEAD];
    if (!make_room(v, sizeof head + n)) return;
    mg_attach_head(head, kind, n);
    keep(v, head, sizeof head);
    keep(v, body, n);
}

static void keep_done(visitor *v, mg_attach_result result, const char *text, size_t n) {
    uint8_t head[MG_ATTACH_HEAD + 1];
    if (n > MG_ATTACH_MOST - 1) n = MG_ATTACH_MOST - 1;
    if (!make_room(v, sizeof head + n)) return;
    mg_attach_head(head, MG_ATTACH_DONE, n + 1);
    head[MG_ATTACH_HEAD] = (uint8_t)result;
    keep(v, head, sizeof head);
    keep(v, text, n);
}

/* With the lock: ends the connection. A command that runs is stopped, since nobody is there who
 * could do it. */
static void hang_up(visitor *v) {
    if (!v->open) return;
    close(v->fd);
    mg_attach_reader_free(&v->reader);
    mg_free(v->out);
    if (v->state == ASKED) mg_free(v->command.body);
    if (v->known && n_gone < MOST_GONE) gone[n_gone++] = v->id;
    const bool runs = v->state == RUNNING;
    *v = (visitor){.id = v->id, .state = runs ? RUNNING : IDLE};
    if (runs) {
        atomic_store(&cancelled, true);
        atomic_store(&cancel, true);
        mg_attach_call_hook();
    }
    set_flag();
}

static void send_some(visitor *v) {
    while (v->open && v->at_out < v->n_out) {
        const ssize_t n = send(v->fd, v->out + v->at_out, v->n_out - v->at_out, MSG_NOSIGNAL);
        if (n > 0) v->at_out += (size_t)n;
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        hang_up(v);
    }
}

/* ---- receiving ---- */

/* With the lock. */
static void ask(visitor *v) {
    v->state = ASKED;
    v->turn = ++last_turn;
    v->command = (mg_command){.slot = (int)(v - visitors),
                              .id = v->id,
                              .kind = mg_attach_kind_of(&v->reader),
                              .body = v->reader.body,
                              .bytes = v->reader.bytes};
    v->reader.body = NULL; /* the command owns it */
    v->cut = false;
    set_flag();
}

static void give_up(visitor *v) {
    if (v->state == ASKED) {
        mg_free(v->command.body);
        v->state = IDLE;
        keep_done(v, MG_ATTACH_GIVEN_UP, "", 0);
        set_flag();
    } else if (v->state == RUNNING) {
        atomic_store(&cancelled, true);
        atomic_store(&cancel, true);
        mg_attach_call_hook();
    }
}

static void pause_job(visitor *v) {
    static const char no[] = "the other ranks would wait for this one until their deadline: with "
                             "several processes a job is not paused";
    if (mg_world_size() > 1) {
        keep_done(v, MG_ATTACH_FAILED, no, sizeof no - 1);
        return;
    }
    v->pausing = true;
    keep_done(v, MG_ATTACH_FINE, "", 0);
    set_flag();
}

static void go_on(visitor *v) {
    static const char no[] = "it is not paused";
    bool paused = false;
    for (int i = 0; i < MG_VISITORS; i++) {
        paused |= visitors[i].pausing;
        visitors[i].pausing = false;
    }
    keep_done(v, MG_ATTACH_FINE, no, paused ? 0 : sizeof no - 1);
    set_flag();
}

static bool any_pausing(void) {
    bool paused = false;
    for (int i = 0; i < MG_VISITORS; i++) paused |= visitors[i].pausing;
    return paused;
}

/* Carries out the record. Texts are made without the lock: they take a while. False: nobody asks
 * for this now. */
static bool carry_out(visitor *v) {
    static char text[128 << 10]; /* of this thread only */
    const mg_attach_kind kind = mg_attach_kind_of(&v->reader);
    if (kind == MG_ATTACH_STATE || kind == MG_ATTACH_WHERE) {
        const bool paused = any_pausing();
        if (v->n_out - v->at_out > MOST_WAITING) return false; /* it asks, but never reads */
        pthread_mutex_unlock(&lock);
        const size_t n = kind == MG_ATTACH_STATE ? mg_server_state(text, sizeof text, paused)
                                                 : mg_server_where(text, sizeof text);
        pthread_mutex_lock(&lock);
        keep_record(v, MG_ATTACH_TOLD, text, n);
        return true;
    }
    if (kind == MG_ATTACH_CANCEL) {
        give_up(v);
        return true;
    }
    if (v->state != IDLE || v->n_out - v->at_out > MOST_WAITING) return false;
    switch (kind) {
    case MG_ATTACH_RUN:
    case MG_ATTACH_COMPLETE: ask(v); return true;
    case MG_ATTACH_PAUSE: pause_job(v); return true;
    case MG_ATTACH_CONTINUE: go_on(v); return true;
    default: return false;
    }
}

/* Reads what there is, but not for ever: others want to be served, too. */
static void receive_some(visitor *v) {
    for (int i = 0; i < 64 && v->open; i++) {
        size_t wanted;
        bool complete = false;
        void *to = mg_attach_room(&v->reader, &wanted);
        const ssize_t n = recv(v->fd, to, wanted, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0 || mg_attach_received(&v->reader, (size_t)n, &complete) != MG_OK ||
            (complete && !carry_out(v))) {
            hang_up(v);
            return;
        }
        if (complete) mg_attach_next(&v->reader);
    }
}

/* ---- for the thread of server.c ---- */

bool mg_visitors_add(int fd) {
    static const char version[] = MG_SERVER_VERSION;
    visitor *v = NULL;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MG_VISITORS && !v; i++)
        if (!visitors[i].open && visitors[i].state == IDLE) v = &visitors[i];
    if (v) {
        *v = (visitor){.open = true, .fd = fd, .id = ++last_id, .reader.at_job = true};
        keep_record(v, MG_ATTACH_HELLO, version, sizeof version - 1);
        send_some(v);
    }
    pthread_mutex_unlock(&lock);
    return v;
}

int mg_visitors_poll(struct pollfd list[MG_VISITORS]) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MG_VISITORS; i++) {
        const visitor *v = &visitors[i];
        list[i] = (struct pollfd){.fd = v->open ? v->fd : -1, .events = POLLIN};
        if (v->at_out < v->n_out) list[i].events |= POLLOUT;
    }
    pthread_mutex_unlock(&lock);
    return MG_VISITORS;
}

void mg_visitors_serve(int slot, short events) {
    visitor *v = &visitors[slot];
    pthread_mutex_lock(&lock);
    if (events & (POLLIN | POLLHUP | POLLERR)) receive_some(v);
    send_some(v);
    pthread_mutex_unlock(&lock);
}

void mg_visitors_close(void) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MG_VISITORS; i++) {
        send_some(&visitors[i]);
        hang_up(&visitors[i]);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- for the script's thread ---- */

bool mg_visitors_take(mg_command *c) {
    visitor *first = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MG_VISITORS; i++) {
        visitor *v = &visitors[i];
        if (v->state == ASKED && (!first || v->turn < first->turn)) first = v;
    }
    if (first) {
        first->state = RUNNING;
        first->known = true;
        *c = first->command;
        atomic_store(&cancel, false);
        atomic_store(&cancelled, false);
        set_flag();
    }
    pthread_mutex_unlock(&lock);
    return first;
}

void mg_visitors_write(const mg_command *c, mg_attach_kind kind, const char *bytes, size_t n) {
    static const char dropped[] = "(more was printed than was read: the rest is dropped)\n";
    visitor *v = &visitors[c->slot];
    pthread_mutex_lock(&lock);
    while (n > 0 && !v->cut) {
        const size_t piece = n < MG_ATTACH_PIECE ? n : MG_ATTACH_PIECE;
        if (v->n_out - v->at_out > MOST_WAITING) {
            v->cut = true;
            keep_record(v, MG_ATTACH_ERRORS, dropped, sizeof dropped - 1);
            break;
        }
        keep_record(v, kind, bytes, piece);
        bytes += piece;
        n -= piece;
    }
    pthread_mutex_unlock(&lock);
    mg_attach_ring();
}

void mg_visitors_done(mg_command *c, mg_attach_result result, const char *text, size_t n) {
    visitor *v = &visitors[c->slot];
    pthread_mutex_lock(&lock);
    if (result == MG_ATTACH_FAILED && atomic_load(&cancelled)) result = MG_ATTACH_GIVEN_UP;
    v->state = IDLE;
    keep_done(v, result, text, n);
    atomic_store(&cancel, false);
    pthread_mutex_unlock(&lock);
    mg_free(c->body);
    c->body = NULL;
    mg_attach_ring();
}

bool mg_visitors_paused(void) {
    pthread_mutex_lock(&lock);
    const bool paused = any_pausing();
    pthread_mutex_unlock(&lock);
    return paused;
}

void mg_visitors_wait(double seconds) {
    const struct timespec until = mg_time_after(seconds);
    pthread_mutex_lock(&lock);
    bool asked = false;
    for (int i = 0; i < MG_VISITORS; i++) asked |= visitors[i].state == ASKED;
    if (!asked) pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
}

unsigned mg_visitors_take_gone(void) {
    pthread_mutex_lock(&lock);
    const unsigned id = n_gone ? gone[--n_gone] : 0;
    if (id) set_flag();
    pthread_mutex_unlock(&lock);
    return id;
}

bool mg_attach_take_cancel(void) {
    return atomic_load(&cancel) && atomic_exchange(&cancel, false);
}

bool mg_attach_wants_hook(void) {
    return atomic_load_explicit(&cancel, memory_order_relaxed) || mg_attach_knocked();
}
