/* Streams, stream capture and events.
 *
 * A stream has a queue of work (queue.c), or records its work in a graph while it captures. An
 * event is a point of a queue. The rules are checked in each call: a stream belongs to one GPU, a
 * thread captures with one stream at a time, and certain calls make a capture invalid. What a real
 * driver refuses during capture is refused here too, with the same errors. */
#include "gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM = 0x73747265, EVENT = 0x6576656e, DEAD = 0xdeaddead }; /* kinds of handles */

struct CUevent_st {
    uint32_t kind;
    CUcontext context;
    bool timed, recorded;
    uint64_t capture;      /* the number of the capture it was recorded in; 0: none */
    struct timespec at;    /* when it was recorded */
    fake_cuda_point point; /* the end of the stream then; holds its queue */
};

static _Thread_local CUstream
    capturing;            /* the stream with which this thread captures; NULL: none */
static uint64_t captures; /* how many captures have begun */

/* ---- streams ---- */

/* Whether the handle is a stream of the thread's current GPU. */
CUresult fake_cuda_stream_error(CUstream s) {
    const CUcontext current = fake_cuda_current();
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (!s) return CUDA_SUCCESS;
    if (s->kind != STREAM)
        return fake_cuda_say(CUDA_ERROR_INVALID_HANDLE, "%p is not a stream", (void *)s);
    if (s->context == current) return CUDA_SUCCESS;
    return fake_cuda_say(CUDA_ERROR_INVALID_HANDLE,
                         "a stream of GPU %d, while the thread is on GPU %d", s->context->device,
                         current->device);
}

bool fake_cuda_capturing(CUstream s) {
    return s && s->capture;
}

/* Runs all its work, except work that hangs. */
static void drive_to_end(CUstream s) {
    const fake_cuda_point end = fake_cuda_queue_end(s ? s->queue : NULL);
    fake_cuda_drive(end);
    fake_cuda_queue_release(end.queue);
}

void fake_cuda_finish_stream(CUstream s) {
    const fake_cuda_point end = fake_cuda_queue_end(s ? s->queue : NULL);
    fake_cuda_reach(end);
    fake_cuda_queue_release(end.queue);
}

/* A stream belongs to the GPU that is current now. */
CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(cuStreamCreate);
    if (!fake_cuda_current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *stream = calloc(1, sizeof **stream);
    fake_cuda_queue *queue = *stream ? fake_cuda_queue_new() : NULL;
    if (!queue) {
        free(*stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*stream)->queue = queue;
    (*stream)->kind = STREAM;
    (*stream)->context = fake_cuda_current();
    return CUDA_SUCCESS;
}

/* CUDA finishes the work of a destroyed stream; here it is done at once. A capture that was not
 * ended is thrown away. */
CUresult cuStreamDestroy(CUstream stream) {
    ENTER(cuStreamDestroy);
    if (!stream || stream->kind != STREAM) return CUDA_ERROR_INVALID_HANDLE;
    /* Destroying a capturing stream ends the capture. */
    if (capturing == stream) capturing = NULL;
    if (stream->capture) cuGraphDestroy(stream->capture);
    drive_to_end(stream);
    fake_cuda_queue_release(stream->queue);
    free(stream->ends.at);
    free(stream->shown);
    stream->kind = (uint32_t)DEAD;
    free(stream);
    return CUDA_SUCCESS;
}

/* Waits; finds writes beside allocations, and reports an earlier fatal error. */
CUresult cuStreamSynchronize(CUstream stream) {
    ENTER(cuStreamSynchronize);
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (fake_cuda_capturing(stream) || !stream) {
        const CUresult refused = fake_cuda_forbid_capture();
        if (refused) return refused;
    }
    fake_cuda_finish_stream(stream);
    fake_cuda_check_guards();
    return fake_cuda_lost();
}

/* Appends the node to the stream's graph: it depends on the last one, and the next will depend on
 * it. */
static bool record_node(CUstream s, fake_cuda_node *node) {
    const size_t number = s->capture->n;
    node->waits = s->ends.at;
    node->n_waits = s->ends.n;
    return fake_cuda_graph_add(s->capture, node) && fake_cuda_places_set(&s->ends, &number, 1);
}

/* Records the work if the stream captures; else sets *own to a copy of its arguments, which the
 * caller runs the work with and frees. */
static CUresult record_or_copy(CUstream stream, fake_cuda_node *node, void **own) {
    /* The default stream would wait for all others, which a capture cannot record. */
    if (!stream && capturing) {
        capturing->spoilt = true;
        return fake_cuda_say(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                             "%s on the default stream while another one captures", node->name);
    }
    if (stream && stream->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream && stream->capture)
        return record_node(stream, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    *own = malloc(node->bytes + 1);
    if (*own && node->bytes) memcpy(*own, node->args, node->bytes);
    return *own ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A node without dependencies, whose arguments are not copied yet. */
static fake_cuda_node node_of(const char *name, fake_cuda_work *work, const void *args,
                              size_t bytes) {
    return (fake_cuda_node){
        .name = name, .work = work, .args = (void *)(uintptr_t)args, .bytes = bytes};
}

/* Work that was done may have failed fatally: the call itself reports it, earlier than a GPU
 * would. The default stream, which waits for all others, has no queue. */
CUresult fake_cuda_enqueue(CUstream stream, const char *name, fake_cuda_work *work,
                           const void *args, size_t bytes) {
    void *own = NULL;
    fake_cuda_node node = node_of(name, work, args, bytes);
    CUresult r = fake_cuda_stream_error(stream);
    if (r == CUDA_SUCCESS) r = record_or_copy(stream, &node, &own);
    if (!own) return r;
    if (stream) {
        fake_cuda_queue_add(stream->queue, work, own);
    } else {
        fake_cuda_drive_all();
        work(own);
        free(own);
    }
    return fake_cuda_lost();
}

CUresult fake_cuda_enqueue_apart(CUstream stream, const char *name, fake_cuda_work *work,
                                 fake_cuda_held *held, const void *args, size_t bytes) {
    void *own = NULL;
    fake_cuda_node node = node_of(name, work, args, bytes);
    node.held = held;
    CUresult r = stream ? fake_cuda_stream_error(stream) : CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS) r = record_or_copy(stream, &node, &own);
    if (own) fake_cuda_queue_add_apart(stream->queue, work, own);
    return r;
}

/* ---- capture ---- */

CUresult fake_cuda_forbid_capture(void) {
    if (!capturing) return CUDA_SUCCESS;
    capturing->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* One capture per thread; the default stream cannot capture. */
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture);
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture || capturing || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = calloc(1, sizeof *stream->capture);
    if (!stream->capture) return CUDA_ERROR_OUT_OF_MEMORY;
    fake_cuda_lock();
    stream->number = ++captures;
    fake_cuda_unlock();
    stream->spoilt = false;
    stream->ends.n = 0;
    capturing = stream;
    return CUDA_SUCCESS;
}

/* The state of a capture and the nodes that the next one will depend on. The handle of a node is
 * its number, counted from 1. */
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **ends,
                                const CUgraphEdgeData **edges, size_t *n) {
    ENTER(cuStreamGetCaptureInfo);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!fake_cuda_capturing(stream)) return CUDA_SUCCESS;
    *status =
        stream->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (stream->spoilt) return CUDA_SUCCESS; /* the other results are not set then */
    *id = stream->number;
    *graph = stream->capture;
    *edges = NULL;
    free(stream->shown);
    stream->shown = malloc((stream->ends.n + 1) * sizeof *stream->shown);
    if (!stream->shown) return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < stream->ends.n; i++)
        stream->shown[i] = (CUgraphNode)(uintptr_t)(stream->ends.at[i] + 1);
    *ends = stream->shown;
    *n = stream->ends.n;
    return CUDA_SUCCESS;
}

/* Sets the nodes that the next node will depend on. */
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
                                           const CUgraphEdgeData *edges, size_t n, unsigned flags) {
    ENTER(cuStreamUpdateCaptureDependencies);
    if (!fake_cuda_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    if (edges || flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    size_t *at = malloc((n + 1) * sizeof *at);
    if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
    /* Only nodes of this capture may be named. */
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        at[i] = (size_t)(uintptr_t)nodes[i] - 1;
        good &= at[i] < stream->capture->n;
    }
    good = good && fake_cuda_places_set(&stream->ends, at, n);
    free(at);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cuCtxGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

/* Of a node that the calling thread captures. Nothing runs earlier here; a test counts the calls.
 */
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID attribute,
                                       const CUlaunchAttributeValue *value) {
    ENTER(cuGraphKernelNodeSetAttribute);
    char name[80];
    const size_t at = (size_t)(uintptr_t)node - 1;
    if (!capturing || !capturing->capture || at >= capturing->capture->n ||
        attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY || value->priority < -5 || value->priority > 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, sizeof name, "%s with priority %d", capturing->capture->nodes[at].name,
             value->priority);
    fake_cuda_note(name);
    return CUDA_SUCCESS;
}

/* Whether all captured nodes come before the stream's next work. The driver asks this only of other
 * streams that were drawn into the capture; here it holds for every node, because the libraries
 * that draw such streams in are fakes. */
static bool is_joined(CUstream s) {
    const struct CUgraph_st *g = s->capture;
    bool *reached = calloc(g->n + 1, 1), all = true;
    if (!reached) return false;
    for (size_t i = 0; i < s->ends.n; i++) reached[s->ends.at[i]] = true;
    for (size_t i = g->n; i-- > 0;) {
        all &= reached[i];
        for (size_t w = 0; w < g->nodes[i].n_waits; w++)
            reached[g->nodes[i].waits[w]] |= reached[i];
    }
    free(reached);
    return all;
}

/* The capture ends even if this fails. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    const CUresult asked = (CUresult)fake_cuda_enter("cuStreamEndCapture");
    *graph = NULL;
    if (!fake_cuda_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    if (capturing != stream) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    /* An invalid capture gives no graph, and neither does a failure that a test requested. */
    CUgraph made = stream->capture;
    const bool spoilt = stream->spoilt, joined = is_joined(stream);
    stream->capture = NULL;
    stream->spoilt = false;
    capturing = NULL;
    if (!spoilt && !asked && joined) *graph = made;
    if (!*graph) cuGraphDestroy(made);
    return asked     ? asked
           : spoilt  ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
           : !joined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                     : CUDA_SUCCESS;
}

/* ---- events ---- */

/* Also reports handles that are not events, or were destroyed. */
static bool is_event(CUevent e) {
    if (e && e->kind == EVENT) return true;
    fake_cuda_say(CUDA_ERROR_INVALID_HANDLE, "%p is not an event", (void *)e);
    return false;
}

/* An event belongs to the GPU that is current now. */
CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER(cuEventCreate);
    if (!fake_cuda_current()) return CUDA_ERROR_INVALID_CONTEXT;
    *event = calloc(1, sizeof **event);
    if (!*event) return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->kind = EVENT;
    (*event)->context = fake_cuda_current();
    (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    ENTER(cuEventDestroy);
    if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
    event->kind = (uint32_t)DEAD;
    fake_cuda_queue_release(event->point.queue);
    free(event);
    return CUDA_SUCCESS;
}

/* Forgets what the event was recorded for before. A timed one is recorded when the stream has done
 * its work. */
static void set_point(CUevent event, CUstream stream) {
    fake_cuda_queue_release(event->point.queue);
    event->point = (fake_cuda_point){0};
    event->recorded = true;
    if (event->capture || !stream) return;
    event->point = fake_cuda_queue_end(stream->queue);
    if (event->timed) fake_cuda_drive(event->point);
}

/* During a capture this only notes which capture the event belongs to: replays do not record the
 * event. */
CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord);
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (stream && event->context != stream->context)
        return fake_cuda_say(CUDA_ERROR_INVALID_HANDLE, "an event of GPU %d is recorded on GPU %d",
                             event->context->device, stream->context->device);
    if (stream && stream->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    /* The event now belongs to the capture, or to none. */
    event->capture = fake_cuda_capturing(stream) ? stream->number : 0;
    set_point(event, stream);
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return CUDA_SUCCESS;
}

/* The stream waits for the point at which the event was recorded last. An event of a capture may
 * only be waited for within that capture. (A real driver lets another stream join the capture this
 * way; our code does not do that.) */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    ENTER(cuStreamWaitEvent);
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    /* Waiting within the same capture, or for an event of no capture on a stream of none, is fine.
     */
    const uint64_t own = fake_cuda_capturing(stream) ? stream->number : 0;
    if (event->capture == own || !event->recorded) {
        if (!own && stream && event->point.queue && event->point.queue != stream->queue)
            fake_cuda_queue_add_wait(stream->queue, event->point);
        return CUDA_SUCCESS;
    }
    if (own) stream->spoilt = true;
    return fake_cuda_say(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                         "a stream waits for an event of another recording, or of none");
}

/* Whether the host may query the event: it belongs to no capture, and the thread does not
 * capture. */
static CUresult ask_error(CUevent event) {
    if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult refused = fake_cuda_forbid_capture();
    return event->capture ? CUDA_ERROR_CAPTURED_EVENT : refused;
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize);
    const CUresult r = ask_error(event);
    if (r != CUDA_SUCCESS) return r;
    fake_cuda_reach(event->point);
    fake_cuda_check_guards();
    return fake_cuda_lost();
}

/* The GPU works between two queries: work that is not done yet is done before the next one. */
CUresult cuEventQuery(CUevent event) {
    ENTER(cuEventQuery);
    const CUresult r = ask_error(event);
    if (r != CUDA_SUCCESS) return r;
    if (fake_cuda_is_reached(event->point)) {
        fake_cuda_check_guards();
        return fake_cuda_lost();
    }
    fake_cuda_drive(event->point);
    const CUresult lost = fake_cuda_lost();
    return lost ? lost : CUDA_ERROR_NOT_READY;
}

/* The time between the two calls that recorded the events, by the host's clock. */
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime);
    if (!is_event(start) || !is_event(end) || !start->timed || !end->timed || !start->recorded ||
        !end->recorded || start->context != end->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->capture || end->capture) return CUDA_ERROR_CAPTURED_EVENT;
    *ms = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                  (double)(end->at.tv_nsec - start->at.tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}
