/* MPI as a transport: one source, compiled for Open MPI (mgpu-openmpi.so), for MPICH
 * (mgpu-mpich.so) and for the ABI that MPI 5.0 standardizes (mgpu-mpi_abi.so). See rules.mk.
 *
 * A message is sent in pieces of at most PIECE bytes, because MPI counts elements in an int. Both
 * sides know the number of bytes, so they cut it alike, and MPI keeps the order of the pieces.
 *
 * Our tags have 32 bits, those of MPI fewer (MPI_TAG_UB; 31 in Open MPI). The low bits are the MPI
 * tag; the high bits choose one of several communicators, all of them duplicates of MPI_COMM_WORLD.
 */
#define _GNU_SOURCE /* process_vm_readv */
#include "core/alloc.h"
#include "core/threads.h"
#include "world/transport.h"
#include MG_MPI_HEADER
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECE = 1 << 30, MOST_COMMS = 16 };

static const double CANCEL_SECONDS = 0.2; /* the longest wait for a message that is given up */
static const double STOP_SECONDS = 5;     /* and for the other processes at the end */

struct mg_message {
    mg_message *next; /* in the list of unused ones */
    int peer;
    bool receives;
    size_t bytes;
    int done, n;           /* pieces */
    MPI_Request *requests; /* one for each piece: &one, or owned */
    MPI_Request one;
};

struct mg_transport {
    MPI_Comm comms[MOST_COMMS];
    int n_comms, tag_bits;
    bool owns_mpi;      /* MPI was initialized by us, not by the host program */
    bool over;          /* no more calls of MPI: see transport_cancel */
    mg_message *unused; /* messages that are done, for reuse */
    char version[96];
};

/* ---- errors ---- */

/* "MPICH 4.0.2" from the library's "MPICH Version:\t4.0.2\n..."; "Open MPI 4.1.4" from "Open MPI
 * v4.1.4, package ...". */
static void read_version(char *to, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) text[0] = 0;
    const char *number = text + strcspn(text, "0123456789\n");
    size_t name = (size_t)(number - text);
    while (name && strchr(" :\tv", text[name - 1])) name--;
    static const char word[] = " Version";
    const size_t n = sizeof word - 1;
    if (name > n && memcmp(text + name - n, word, n) == 0) name -= n;
    snprintf(to, room, "%.*s %.*s", (int)name, text, (int)strspn(number, "0123456789."), number);
}

static mg_status fail(const mg_transport *t, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    return mg_fail(MG_COMM, "%s: %s: %s", t->version, what, text);
}

static mg_status fail_message(const mg_transport *t, int code, const mg_message *m) {
    char what[96];
    snprintf(what, sizeof what,
             m->receives ? "receiving %zu bytes from rank %d" : "sending %zu bytes to rank %d",
             m->bytes, m->peer);
    return fail(t, code, what);
}

static mg_status fail_over(const mg_transport *t) {
    return mg_fail(MG_COMM, "%s: a message was given up before, so no more can be exchanged",
                   t->version);
}

/* ---- messages ---- */

/* Returns a message with room for the requests of its pieces; NULL after MG_OOM. */
static mg_message *new_message(mg_transport *t, int peer, size_t bytes, bool receives) {
    const size_t n = bytes ? (bytes - 1) / PIECE + 1 : 1;
    mg_message *m = t->unused;
    if (m)
        t->unused = m->next;
    else if (!(m = mg_alloc(sizeof *m)))
        return NULL;
    *m = (mg_message){.peer = peer, .receives = receives, .bytes = bytes, .n = (int)n};
    m->requests = n == 1 ? &m->one : mg_alloc(n * sizeof *m->requests);
    if (m->requests) return m;
    mg_free(m);
    return NULL;
}

/* Keeps the message for reuse. */
static void drop_message(mg_transport *t, mg_message *m) {
    if (m->requests != &m->one) mg_free(m->requests);
    m->next = t->unused;
    t->unused = m;
}

static size_t piece_size(const mg_message *m, int i) {
    return i < m->n - 1 ? PIECE : m->bytes - (size_t)i * PIECE;
}

static void transport_cancel(mg_transport *t, mg_message *m);

/* Starts all pieces. */
static mg_status begin(mg_transport *t, int peer, uint32_t tag, char *data, size_t bytes,
                       bool receives, mg_message **result) {
    const uint64_t comm = (uint64_t)tag >> t->tag_bits;
    const int mpi_tag = (int)(tag & ((UINT64_C(1) << t->tag_bits) - 1));
    if (t->over) return fail_over(t);
    if (comm >= (uint64_t)t->n_comms)
        return mg_fail(MG_UNSUPPORTED, "%s: the tag %u is too large: its tags have %d bits",
                       t->version, (unsigned)tag, t->tag_bits);
    mg_message *m = new_message(t, peer, bytes, receives);
    if (!m) return MG_OOM;
    for (int i = 0; i < m->n; i++) {
        const int size = (int)piece_size(m, i);
        const int code =
            receives
                ? MPI_Irecv(data, size, MPI_BYTE, peer, mpi_tag, t->comms[comm], &m->requests[i])
                : MPI_Isend(data, size, MPI_BYTE, peer, mpi_tag, t->comms[comm], &m->requests[i]);
        if (code != MPI_SUCCESS) {
            const mg_status status = fail_message(t, code, m);
            m->n = i;
            transport_cancel(t, m);
            return status;
        }
        data += size;
    }
    *result = m;
    return MG_OK;
}

static mg_status transport_send(mg_transport *t, int to, uint32_t tag, const void *data,
                                size_t bytes, mg_message **m) {
    return begin(t, to, tag, (char *)(uintptr_t)data, bytes, false, m);
}

static mg_status transport_receive(mg_transport *t, int from, uint32_t tag, void *data,
                                   size_t bytes, mg_message **m) {
    return begin(t, from, tag, data, bytes, true, m);
}

/* Tests the pieces in order, up to the first that is under way. *over: none is left. A received
 * piece of another size than expected is an error, as too large ones are for MPI itself. */
static mg_status advance(mg_transport *t, mg_message *m, bool *over) {
    for (*over = false; m->done < m->n; m->done++) {
        MPI_Status about;
        int flag = 0, count = 0;
        int code = MPI_Test(&m->requests[m->done], &flag, &about);
        if (code == MPI_SUCCESS && flag && m->receives)
            code = MPI_Get_count(&about, MPI_BYTE, &count);
        if (code != MPI_SUCCESS) return fail_message(t, code, m);
        if (!flag) return MG_OK;
        if (m->receives && (size_t)count != piece_size(m, m->done))
            return mg_fail(MG_COMM, "%s: rank %d sent %d bytes where %zu were expected", t->version,
                           m->peer, count, piece_size(m, m->done));
    }
    *over = true;
    return MG_OK;
}

static mg_status transport_test(mg_transport *t, mg_message *m, bool *done) {
    const mg_status status = t->over ? fail_over(t) : advance(t, m, done);
    if (status != MG_OK) {
        transport_cancel(t, m);
        *done = true;
    } else if (*done) {
        drop_message(t, m);
    }
    return status;
}

/* Whether all pieces have ended, done or taken back, within CANCEL_SECONDS. */
static bool pieces_ended(mg_message *m) {
    const double until = mg_seconds() + CANCEL_SECONDS;
    for (int i = m->done; i < m->n; i++)
        if (m->receives && m->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&m->requests[i]);
    while (m->done < m->n) {
        int flag = 0;
        if (MPI_Test(&m->requests[m->done], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag)
            m->done++;
        else if (mg_seconds() > until)
            return false;
    }
    return true;
}

/* A receive that no message has reached can be taken back. What is under way ends by itself while
 * the other process and the network work. Otherwise MPI is not called any more: it moves data only
 * within calls, so it does not touch the memory either. (A network card that was told to write to
 * this memory has done it, or given up, long before CANCEL_SECONDS are over.) */
static void transport_cancel(mg_transport *t, mg_message *m) {
    if (!t->over && !pieces_ended(m)) t->over = true;
    drop_message(t, m);
}

/* ---- start and stop ---- */

/* Open MPI 4 copies large messages from the memory of the other process, and prints a line for each
 * piece where that is forbidden, as in some containers: so it is tried with our own memory before.
 */
static void avoid_forbidden_copies(void) {
    char from = 0, to = 0;
    const struct iovec source = {&from, 1}, target = {&to, 1};
    if (process_vm_readv(getpid(), &target, 1, &source, 1, 0) != 1)
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

/* Libraries install handlers, for reports of crashes, and MPICH for SIGUSR1. */
static int init_keeping_signals(int *level) {
    mg_signals_kept signals;
    avoid_forbidden_copies();
    mg_signals_keep(&signals);
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, level);
    mg_signals_restore(&signals);
    return code;
}

/* Initializes MPI, unless the host program has done so, for calls by one thread at a time. */
static mg_status init_mpi(mg_transport *t) {
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized)
        return mg_fail(MG_USAGE, "%s: MPI was ended in this process, and cannot be started again",
                       t->version);
    const int code = initialized ? MPI_Query_thread(&level) : init_keeping_signals(&level);
    if (code != MPI_SUCCESS) return fail(t, code, "MPI_Init_thread");
    t->owns_mpi = !initialized;
    if (level < MPI_THREAD_SERIALIZED)
        return mg_fail(
            MG_UNSUPPORTED,
            "%s: it can be called from one thread only, because it %s; it needs at least "
            "MPI_THREAD_SERIALIZED",
            t->version, initialized ? "was initialized that way" : "was built without threads");
    return MG_OK;
}

/* A process that was started by the launcher of another MPI is alone: rank 0 of 1. */
static mg_status check_rank(const mg_transport *t, const mg_transport_start *how) {
    int rank = -1, size = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == how->rank && size == how->size) return MG_OK;
    return mg_fail(MG_COMM,
                   "%s: this process is rank %d of %d there, but the launcher made it rank %d of "
                   "%d: start it by the mpirun of the same MPI",
                   t->version, rank, size, how->rank, how->size);
}

/* Makes as many communicators as tags of 32 bits need, or MOST_COMMS. Failures of calls become
 * return values; for MPI_COMM_WORLD too, as duplicates inherit that. */
static mg_status make_comms(mg_transport *t) {
    int *bound = NULL, found = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    const int most = found && bound ? *bound : 32767; /* the least that MPI promises */
    while (t->tag_bits < 31 && most >> t->tag_bits > 0) t->tag_bits++;
    if (((INT64_C(1) << t->tag_bits) - 1) > most) t->tag_bits--;
    const int64_t needed = INT64_C(1) << (32 - t->tag_bits);
    const int n = needed < MOST_COMMS ? (int)needed : MOST_COMMS;
    for (; t->n_comms < n; t->n_comms++) {
        const int code = MPI_Comm_dup(MPI_COMM_WORLD, &t->comms[t->n_comms]);
        if (code != MPI_SUCCESS) return fail(t, code, "MPI_Comm_dup");
    }
    return MG_OK;
}

/* Waits until all processes have come here, at most STOP_SECONDS. MPI_Finalize of MPICH 4.0 makes
 * no progress with messages while it waits for others, which may need it to end theirs. */
static bool meet(mg_transport *t) {
    const double until = mg_seconds() + STOP_SECONDS;
    MPI_Request request;
    int done = 0;
    if (MPI_Ibarrier(t->comms[0], &request) != MPI_SUCCESS) return false;
    while (!done)
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || mg_seconds() > until)
            return false;
    return true;
}

/* An unclean end leaves MPI as it is: MPI_Finalize would wait for the other processes. */
static void transport_stop(mg_transport *t, bool clean) {
    if (clean && !t->over && meet(t)) {
        for (int i = 0; i < t->n_comms; i++) MPI_Comm_free(&t->comms[i]);
        if (t->owns_mpi) MPI_Finalize();
    }
    for (mg_message *m = t->unused, *next; m; m = next) {
        next = m->next;
        mg_free(m);
    }
    mg_free(t);
}

static mg_transport *transport_start(const mg_transport_start *how) {
    mg_transport *t = mg_alloc_zero(sizeof *t);
    if (!t) return NULL;
    read_version(t->version, sizeof t->version);
    mg_status status = init_mpi(t);
    if (status == MG_OK) status = check_rank(t, how);
    if (status == MG_OK) status = make_comms(t);
    if (status == MG_OK) return t;
    transport_stop(t, false);
    return NULL;
}

static const char *transport_version(const mg_transport *t) {
    return t->version;
}

const mg_transport_api *mg_transport_plugin(void);
const mg_transport_api *mg_transport_plugin(void) {
    static const mg_transport_api api = {.size = sizeof api,
                                         .kind = MG_MPI_KIND,
                                         .own_addresses = true,
                                         .start = transport_start,
                                         .version = transport_version,
                                         .send = transport_send,
                                         .receive = transport_receive,
                                         .test = transport_test,
                                         .cancel = transport_cancel,
                                         .stop = transport_stop};
    return &api;
}
