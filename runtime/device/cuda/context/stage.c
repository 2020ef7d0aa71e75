/* Staging: data that a device will need are copied to it ahead of time, beside its work.
 *
 * The copies have their own stream and pinned memory, so they neither wait for the device's work
 * nor delay it. Events keep the order: a block's copy waits for the event `released`, recorded on
 * the device's stream after the last reader of the block's previous contents; and the device's
 * stream waits for the event `copied` when the block is handed over, or at the latest when it is
 * freed. Blocks that were freed are kept for copies of the same size: a loop has a few, and gives
 * the same addresses to its steps again and again. */
#include "device/cuda/context/stage.h"
#include "core/alloc.h"
#include "device/cuda/context/context.h"

typedef struct staged_block {
    void *data;
    size_t bytes;
    CUevent released, copied;
    bool free;   /* not in use */
    bool joined; /* the device's stream waits for the copy */
} staged_block;

typedef struct mg_cuda_stage {
    CUstream stream;
    mg_cuda_channel channel;
    staged_block *blocks; /* owned; guarded by the device's turn */
    int n, room;
    size_t free_bytes;
} mg_cuda_stage;

/* ---- life ---- */

static void free_events(const staged_block *b) {
    if (b->released) mg_cu.cuEventDestroy(b->released);
    if (b->copied) mg_cu.cuEventDestroy(b->copied);
}

void mg_cuda_stage_close(mg_cuda *s) {
    mg_cuda_stage *g = s->stage;
    if (!g) return;
    for (int i = 0; i < g->n; i++) {
        free_events(&g->blocks[i]);
        if (g->blocks[i].free)
            mg_cu.cuMemFreeAsync((CUdeviceptr)(uintptr_t)g->blocks[i].data, s->stream);
    }
    mg_cuda_channel_close(&g->channel);
    pthread_mutex_destroy(&g->channel.busy);
    if (g->stream) mg_cu.cuStreamDestroy(g->stream);
    mg_free(g->blocks);
    mg_free(g);
    s->stage = NULL;
}

/* Makes the stage on first use. The turn must be held. */
static mg_status open_stage(mg_device *d) {
    mg_cuda *s = d->state;
    if (s->stage) return MG_OK;
    s->stage = mg_alloc_zero(sizeof *s->stage);
    if (!s->stage) return MG_OOM;
    pthread_mutex_init(&s->stage->channel.busy, NULL);
    CUresult r = mg_cu.cuStreamCreate(&s->stage->stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS) r = mg_cuda_channel_open(&s->stage->channel, s->stage->stream, NULL);
    if (r != CUDA_SUCCESS) mg_cuda_stage_close(s);
    return mg_cuda_check(d, r, "make a stream for copies");
}

/* ---- blocks; all with the turn held ---- */

static staged_block *find_block(const mg_cuda *s, const void *data) {
    for (int i = 0; s->stage && i < s->stage->n; i++)
        if (s->stage->blocks[i].data == data) return &s->stage->blocks[i];
    return NULL;
}

/* A free block of this size, or NULL. */
static staged_block *take_free(mg_cuda_stage *g, size_t bytes) {
    for (int i = 0; i < g->n; i++) {
        staged_block *b = &g->blocks[i];
        if (!b->free || b->bytes != bytes) continue;
        b->free = b->joined = false;
        g->free_bytes -= bytes;
        return b;
    }
    return NULL;
}

/* Adds a block, whose previous contents the device's stream may still use. */
static mg_status add_block(mg_device *d, void *data, size_t bytes) {
    mg_cuda *s = d->state;
    staged_block b = {.data = data, .bytes = bytes};
    mg_cuda_stage *g = s->stage;
    MG_TRY(mg_reserve((void **)&g->blocks, g->n, &g->room, sizeof *g->blocks));
    CUresult r = mg_cu.cuEventCreate(&b.released, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventCreate(&b.copied, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(b.released, s->stream);
    if (r == CUDA_SUCCESS)
        g->blocks[g->n++] = b;
    else
        free_events(&b);
    return mg_cuda_check(d, r, "make an event");
}

/* The device's stream waits for the copy. */
static CUresult join(const mg_cuda *s, staged_block *b) {
    if (b->joined) return CUDA_SUCCESS;
    b->joined = true;
    return mg_cu.cuStreamWaitEvent(s->stream, b->copied, 0);
}

/* Takes the block out of the list. */
static void forget_block(mg_cuda_stage *g, staged_block *b) {
    free_events(b);
    *b = g->blocks[--g->n];
}

bool mg_cuda_stage_free(mg_cuda *s, void *data) {
    staged_block *b = find_block(s, data);
    if (!b) return false;
    const bool kept = join(s, b) == CUDA_SUCCESS &&
                      mg_cu.cuEventRecord(b->released, s->stream) == CUDA_SUCCESS &&
                      s->stage->free_bytes + b->bytes <= s->kept_most;
    if (!kept) {
        forget_block(s->stage, b);
        return false;
    }
    b->free = true;
    s->stage->free_bytes += b->bytes;
    return true;
}

void *mg_cuda_stage_drop(mg_cuda *s) {
    for (int i = 0; s->stage && i < s->stage->n; i++) {
        staged_block *b = &s->stage->blocks[i];
        if (!b->free) continue;
        void *data = b->data;
        s->stage->free_bytes -= b->bytes;
        forget_block(s->stage, b);
        return data;
    }
    return NULL;
}

/* ---- copies ---- */

/* *data: a block for a copy, new or reused. */
static mg_status find_place(mg_device *d, size_t bytes, const mg_cuda_stop *stop, void **data) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    mg_status status = open_stage(d);
    const staged_block *b = status == MG_OK ? take_free(s->stage, bytes) : NULL;
    *data = b ? b->data : NULL;
    pthread_mutex_unlock(&s->turn);
    if (status != MG_OK || *data) return status;
    MG_TRY(mg_cuda_alloc_or_stop(d, bytes, stop, data));
    pthread_mutex_lock(&s->turn);
    status = add_block(d, *data, bytes);
    pthread_mutex_unlock(&s->turn);
    if (status != MG_OK) mg_cuda_free(d, *data, bytes);
    return status;
}

/* Copies into the block on the stream for copies. `copied` is recorded even if the copy fails. The
 * channel's `busy` must be held. */
static mg_status copy_ahead(mg_device *d, void *data, const mg_staging *what,
                            const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    const staged_block b = *find_block(s, data);
    pthread_mutex_unlock(&s->turn);
    MG_TRY(mg_cuda_check(d, mg_cu.cuStreamWaitEvent(s->stage->stream, b.released, 0),
                         "wait for an event"));
    const mg_status status =
        mg_cuda_channel_send(d, &s->stage->channel, data, what->src, what->bytes, stop);
    const CUresult r = mg_cu.cuEventRecord(b.copied, s->stage->stream);
    return status != MG_OK ? status : mg_cuda_check(d, r, "record an event");
}

mg_status mg_cuda_stage_in(mg_device *d, const mg_staging *what, void **data) {
    const mg_cuda_stop asked = {what->stop, what->context}, *stop = what->stop ? &asked : NULL;
    MG_TRY(mg_cuda_enter(d));
    MG_TRY(find_place(d, what->bytes, stop, data));
    mg_cuda_channel *channel = &mg_cuda_of(d)->stage->channel;
    pthread_mutex_lock(&channel->busy);
    const mg_status status = copy_ahead(d, *data, what, stop);
    pthread_mutex_unlock(&channel->busy);
    if (status != MG_OK) mg_cuda_free(d, *data, what->bytes);
    return status;
}

mg_status mg_cuda_stage_join(mg_device *d, void *data) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    staged_block *b = find_block(s, data);
    const CUresult r = b ? join(s, b) : CUDA_SUCCESS;
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "wait for an event");
}
