/* mgpu-ucx.so: UCX as a transport, for processes that no MPI started. It chooses shared memory, TCP
 * or RDMA for each pair of processes by itself.
 *
 * Each process has one UCX worker, and an endpoint to each other process, made from the addresses
 * that the processes exchange through the store. A message's UCX tag holds the rank of its sender
 * and its own tag; a bit more marks the empty messages by which start and stop wait for the others.
 *
 * The library is opened at the start, after environment variables that keep it quiet were set. */
#include "core/alloc.h"
#include "core/library.h"
#include "core/threads.h"
#include "world/hub.h"
#include "world/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define UCX_FUNCTIONS(X)                                                                           \
    X(ucp_get_version_string)                                                                      \
    X(ucs_status_string)                                                                           \
    X(ucp_config_read)                                                                             \
    X(ucp_config_modify)                                                                           \
    X(ucp_config_release)                                                                          \
    X(ucp_init_version)                                                                            \
    X(ucp_cleanup)                                                                                 \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_progress)                                                                         \
    X(ucp_worker_get_address)                                                                      \
    X(ucp_worker_release_address)                                                                  \
    X(ucp_ep_create)                                                                               \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_tag_send_nbx)                                                                            \
    X(ucp_tag_recv_nbx)                                                                            \
    X(ucp_tag_recv_request_test)                                                                   \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_free)

MG_LIBRARY_TABLE(ucx_api, UCX_FUNCTIONS);
static ucx_api ucx;
MG_LIBRARY(library, ucx, UCX_FUNCTIONS, .file = "libucp.so.0", .foreign = 1, .what = "UCX",
           .install = "install libucx0");

static const double CANCEL_SECONDS = 0.2; /* the longest wait for a message that is given up */
static const double CLOSE_SECONDS = 5;    /* for the other processes, at the end */

enum { HOST = 128 }; /* bytes that tell hosts apart */

typedef struct peer {
    ucp_ep_h ep;         /* NULL: itself, or closed */
    bool near;           /* on this host */
    ucs_status_t failed; /* why it cannot be reached any more; UCS_OK: it can */
} peer;

struct mg_message {
    mg_message *next; /* in the list of unused ones */
    int peer;
    bool receives;
    size_t bytes;
    void *request; /* NULL: done */
    ucp_tag_recv_info_t received;
};

struct mg_transport {
    int rank, size;
    char host[HOST];
    ucp_context_h context;
    ucp_worker_h worker;
    bool over;          /* no more calls of UCX: see transport_cancel */
    mg_message *unused; /* messages that are done, for reuse */
    char version[32];
    peer peers[];
};

/* ---- errors ---- */

static mg_status fail(const char *what, ucs_status_t status) {
    return mg_fail(status == UCS_ERR_NO_MEMORY ? MG_OOM : MG_COMM, "UCX: %s: %s", what,
                   ucx.ucs_status_string(status));
}

static mg_status fail_message(const mg_message *m, ucs_status_t status) {
    char what[96];
    snprintf(what, sizeof what, "%s rank %d", m->receives ? "receiving from" : "sending to",
             m->peer);
    return fail(what, status);
}

static mg_status fail_over(void) {
    return mg_fail(MG_COMM, "UCX: a message was given up before, so no more can be exchanged");
}

/* ---- messages ---- */

/* The tag of UCX: a bit for messages of start and stop, 31 bits for the sender, 32 for ours. */
static ucp_tag_t full_tag(bool internal, int from, uint32_t tag) {
    return (ucp_tag_t)internal << 63 | (ucp_tag_t)(uint32_t)from << 32 | tag;
}

static mg_message *new_message(mg_transport *t, int other, size_t bytes, bool receives) {
    mg_message *m = t->unused;
    if (m)
        t->unused = m->next;
    else if (!(m = mg_alloc(sizeof *m)))
        return NULL;
    *m = (mg_message){.peer = other, .receives = receives, .bytes = bytes};
    m->received.length = bytes;
    return m;
}

/* Keeps the message for reuse. */
static void drop_message(mg_transport *t, mg_message *m) {
    m->next = t->unused;
    t->unused = m;
}

/* Ends the start of a message: `request` is what UCX returned. */
static mg_status started(mg_transport *t, mg_message *m, ucs_status_ptr_t request,
                         mg_message **result) {
    if (UCS_PTR_IS_ERR(request)) {
        const mg_status status = fail_message(m, UCS_PTR_STATUS(request));
        drop_message(t, m);
        return status;
    }
    m->request = request;
    *result = m;
    return MG_OK;
}

static mg_status send_tagged(mg_transport *t, int to, ucp_tag_t tag, const void *data, size_t bytes,
                             mg_message **result) {
    const ucp_request_param_t how = {0};
    mg_message *m = new_message(t, to, bytes, false);
    if (!m) return MG_OOM;
    const ucs_status_t failed = t->peers[to].failed;
    return started(t, m,
                   failed != UCS_OK ? UCS_STATUS_PTR(failed)
                                    : ucx.ucp_tag_send_nbx(t->peers[to].ep, data, bytes, tag, &how),
                   result);
}

static mg_status receive_tagged(mg_transport *t, int from, ucp_tag_t tag, void *data, size_t bytes,
                                mg_message **result) {
    mg_message *m = new_message(t, from, bytes, true);
    if (!m) return MG_OOM;
    /* Where the message is there already and the receive is done at once, UCX 1.13 does not always
     * tell its size. */
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    return started(t, m, ucx.ucp_tag_recv_nbx(t->worker, data, bytes, tag, ~(ucp_tag_t)0, &how),
                   result);
}

static mg_status transport_send(mg_transport *t, int to, uint32_t tag, const void *data,
                                size_t bytes, mg_message **m) {
    if (t->over) return fail_over();
    return send_tagged(t, to, full_tag(false, t->rank, tag), data, bytes, m);
}

static mg_status transport_receive(mg_transport *t, int from, uint32_t tag, void *data,
                                   size_t bytes, mg_message **m) {
    if (t->over) return fail_over();
    return receive_tagged(t, from, full_tag(false, from, tag), data, bytes, m);
}

/* The status of a message, after some progress. A receive from a process that has failed would stay
 * under way. */
static ucs_status_t status_of(mg_transport *t, mg_message *m) {
    ucx.ucp_worker_progress(t->worker);
    if (!m->request) return UCS_OK;
    const ucs_status_t status = m->receives
                                    ? ucx.ucp_tag_recv_request_test(m->request, &m->received)
                                    : ucx.ucp_request_check_status(m->request);
    return status == UCS_INPROGRESS && t->peers[m->peer].failed != UCS_OK ? t->peers[m->peer].failed
                                                                          : status;
}

static void transport_cancel(mg_transport *t, mg_message *m);

static mg_status transport_test(mg_transport *t, mg_message *m, bool *done) {
    const ucs_status_t status = t->over ? UCS_ERR_CANCELED : status_of(t, m);
    *done = status != UCS_INPROGRESS;
    if (!*done) return MG_OK;
    mg_status result = MG_OK;
    if (t->over)
        result = fail_over();
    else if (status != UCS_OK)
        result = fail_message(m, status);
    else if (m->received.length != m->bytes)
        result = mg_fail(MG_COMM, "UCX: rank %d sent %zu bytes where %zu were expected", m->peer,
                         m->received.length, m->bytes);
    transport_cancel(t, m);
    return result;
}

/* Waits for a request, at most `seconds`, and frees it. False: it is still under way. */
static bool finish_request(mg_transport *t, void *request, double seconds) {
    const double until = mg_seconds() + seconds;
    while (ucx.ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (mg_seconds() > until) return false;
        ucx.ucp_worker_progress(t->worker);
    }
    ucx.ucp_request_free(request);
    return true;
}

/* Closes the endpoint. Returns the request, NULL if it is closed. */
static void *close_peer(peer *other, uint32_t flags) {
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    if (!other->ep) return NULL;
    void *request = ucx.ucp_ep_close_nbx(other->ep, &how);
    other->ep = NULL;
    if (other->failed == UCS_OK) other->failed = UCS_ERR_CANCELED;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Ends a message that is under way by closing the endpoint without the consent of the other
 * process, which UCX can do if it handles failures of it. Else UCX is not called any more: it moves
 * data only within calls, so it does not touch the message's memory either. */
static void force_end(mg_transport *t, mg_message *m) {
    peer *other = &t->peers[m->peer];
    void *closing = other->near ? NULL : close_peer(other, UCP_EP_CLOSE_FLAG_FORCE);
    t->over = other->near || !finish_request(t, m->request, CANCEL_SECONDS) ||
              (closing && !finish_request(t, closing, CANCEL_SECONDS));
}

/* A receive that no message has reached can be taken back. What is under way ends by itself while
 * the other process and the network work. */
static void transport_cancel(mg_transport *t, mg_message *m) {
    if (!t->over && m->request) { /* may be done already */
        ucx.ucp_request_cancel(t->worker, m->request);
        if (!finish_request(t, m->request, CANCEL_SECONDS)) force_end(t, m);
    }
    drop_message(t, m);
}

/* ---- meeting ---- */

/* UCX calls it from ucp_worker_progress. */
static void note_failure(void *other, ucp_ep_h ep, ucs_status_t status) {
    (void)ep;
    ((peer *)other)->failed = status;
}

/* What tells hosts apart: the id of its start, and its name, which containers have for themselves.
 */
static void read_host(char host[HOST]) {
    static const size_t half = HOST / 2;
    memset(host, 0, HOST);
    gethostname(host, half - 1);
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!boot) return;
    if (!fgets(host + half, (int)half, boot)) host[half] = 0;
    fclose(boot);
}

/* Puts this process's card: its host, followed by its address. */
static mg_status put_card(mg_transport *t, const mg_transport_start *how) {
    char key[32];
    ucp_address_t *address;
    size_t bytes;
    const ucs_status_t status = ucx.ucp_worker_get_address(t->worker, &address, &bytes);
    if (status != UCS_OK) return fail("ucp_worker_get_address", status);
    char *card = mg_alloc(HOST + bytes);
    if (card) {
        memcpy(card, t->host, HOST);
        memcpy(card + HOST, address, bytes);
    }
    ucx.ucp_worker_release_address(t->worker, address);
    if (!card) return MG_OOM;
    snprintf(key, sizeof key, "ucx-%d", t->rank);
    const mg_status put = how->put(how->context, key, card, HOST + bytes);
    mg_free(card);
    return put;
}

/* The handling of peer failures costs the shared memory of a host, which UCX does not use then: 4 B
 * take 10 us instead of 0.3. So it is for other hosts only. */
static mg_status connect_peer(mg_transport *t, const mg_transport_start *how, int rank) {
    char key[32];
    void *card;
    size_t bytes;
    snprintf(key, sizeof key, "ucx-%d", rank);
    MG_TRY(how->get(how->context, key, &card, &bytes));
    peer *other = &t->peers[rank];
    other->near = bytes > HOST && memcmp(card, t->host, HOST) == 0;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)((const char *)card + HOST),
        .err_mode = other->near ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {note_failure, other}};
    const ucs_status_t status =
        bytes > HOST ? ucx.ucp_ep_create(t->worker, &params, &other->ep) : UCS_ERR_INVALID_ADDR;
    mg_free(card);
    if (status == UCS_OK) return MG_OK;
    snprintf(key, sizeof key, "connecting to rank %d", rank);
    return fail(key, status);
}

/* Waits for a message of start or stop. */
static mg_status finish_message(mg_transport *t, mg_message *m, double until) {
    for (bool done = false; !done;) {
        const int other = m->peer;
        MG_TRY(transport_test(t, m, &done));
        const bool interrupted = mg_interrupt_pending();
        if (done || (mg_seconds() < until && !interrupted)) continue;
        transport_cancel(t, m);
        if (interrupted) return mg_fail(MG_INTERRUPTED, "interrupted");
        return mg_fail(MG_COMM,
                       "UCX: rank %d does not answer: if its host has several networks, name the "
                       "card of a common one by MGPU_INTERFACE or UCX_NET_DEVICES",
                       other);
    }
    return MG_OK;
}

/* Returns when every process has come here: an empty message to each, and one from each. */
static mg_status meet(mg_transport *t, uint32_t tag, double seconds) {
    const double until = mg_seconds() + seconds;
    mg_message *m = NULL;
    for (int i = 1; i < t->size; i++) {
        const int to = (t->rank + i) % t->size;
        MG_TRY(send_tagged(t, to, full_tag(true, t->rank, tag), NULL, 0, &m));
        MG_TRY(finish_message(t, m, until));
    }
    for (int i = 1; i < t->size; i++) {
        const int from = (t->rank + t->size - i) % t->size;
        MG_TRY(receive_tagged(t, from, full_tag(true, from, tag), NULL, 0, &m));
        MG_TRY(finish_message(t, m, until));
    }
    return MG_OK;
}

/* ---- start and stop ---- */

enum { START_TAG, STOP_TAG };

/* Opens the library without its log on the standard output, unless the user has set that. */
static mg_status open_library(void) {
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    return mg_library_open(&library);
}

/* Limits UCX to the network card of MGPU_INTERFACE, unless UCX_NET_DEVICES is set. */
static mg_status choose_card(ucp_config_t *config) {
    char card[64];
    if (getenv("UCX_NET_DEVICES")) return MG_OK;
    MG_TRY(mg_hub_card(card, sizeof card));
    if (!card[0]) return MG_OK;
    const ucs_status_t status = ucx.ucp_config_modify(config, "NET_DEVICES", card);
    return status == UCS_OK ? MG_OK : fail("setting NET_DEVICES", status);
}

static mg_status make_worker(mg_transport *t) {
    const ucp_params_t context = {.field_mask =
                                      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                  .features = UCP_FEATURE_TAG,
                                  .estimated_num_eps = (size_t)t->size};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_config_t *config;
    ucs_status_t status = ucx.ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) return fail("reading the variables UCX_*", status);
    const mg_status chosen = choose_card(config);
    if (chosen == MG_OK)
        status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &context, config, &t->context);
    ucx.ucp_config_release(config);
    MG_TRY(chosen);
    if (status == UCS_ERR_NO_DEVICE)
        return mg_fail(MG_COMM, "UCX: no network card is up of those that MGPU_INTERFACE or "
                                "UCX_NET_DEVICES name, for a transport of UCX_TLS");
    if (status != UCS_OK) return fail("ucp_init", status);
    status = ucx.ucp_worker_create(t->context, &worker, &t->worker);
    return status == UCS_OK ? MG_OK : fail("ucp_worker_create", status);
}

static mg_status connect_all(mg_transport *t, const mg_transport_start *how) {
    read_host(t->host);
    MG_TRY(put_card(t, how));
    for (int i = 1; i < t->size; i++) MG_TRY(connect_peer(t, how, (t->rank + i) % t->size));
    return meet(t, START_TAG, how->patience);
}

/* Closes all endpoints, which sends what they still hold, and waits for that. */
static void close_all(mg_transport *t) {
    const double until = mg_seconds() + CLOSE_SECONDS;
    for (int i = 0; i < t->size; i++) {
        void *closing = close_peer(&t->peers[i], 0);
        if (closing && !finish_request(t, closing, until - mg_seconds())) return;
    }
}

/* An unclean end closes nothing: UCX would wait for the other processes. */
static void transport_stop(mg_transport *t, bool clean) {
    if (clean && !t->over && meet(t, STOP_TAG, CLOSE_SECONDS) == MG_OK) close_all(t);
    if (clean && !t->over) {
        ucx.ucp_worker_destroy(t->worker);
        ucx.ucp_cleanup(t->context);
    }
    for (mg_message *m = t->unused, *next; m; m = next) {
        next = m->next;
        mg_free(m);
    }
    mg_free(t);
}

/* Opens the library and makes the worker. UCX installs handlers, for SIGHUP and for reports of
 * crashes, and makes a thread. */
static mg_status open_keeping_signals(mg_transport *t) {
    mg_signals_kept signals;
    mg_signals_keep(&signals);
    mg_status status = open_library();
    if (status == MG_OK) status = make_worker(t);
    mg_signals_restore(&signals);
    return status;
}

static mg_transport *transport_start(const mg_transport_start *how) {
    mg_transport *t = mg_alloc_zero(sizeof *t + (size_t)how->size * sizeof *t->peers);
    if (!t) return NULL;
    t->rank = how->rank;
    t->size = how->size;
    mg_status status = open_keeping_signals(t);
    if (status == MG_OK) status = connect_all(t, how);
    if (status == MG_OK) {
        snprintf(t->version, sizeof t->version, "UCX %s", ucx.ucp_get_version_string());
        return t;
    }
    transport_stop(t, false);
    return NULL;
}

static const char *transport_version(const mg_transport *t) {
    return t->version;
}

const mg_transport_api *mg_transport_plugin(void);
const mg_transport_api *mg_transport_plugin(void) {
    static const mg_transport_api api = {.size = sizeof api,
                                         .kind = "ucx",
                                         .start = transport_start,
                                         .version = transport_version,
                                         .send = transport_send,
                                         .receive = transport_receive,
                                         .test = transport_test,
                                         .cancel = transport_cancel,
                                         .stop = transport_stop};
    return &api;
}
