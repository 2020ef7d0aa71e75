/* Waiting for a GPU.
 *
 * The driver's own waits cannot be ended before the GPU is done. So the host polls an event: first
 * without pauses, because most waits are short, then with pauses that grow with the time waited. A
 * GPU that does not answer within the deadline (MGPU_DEADLINE, MGPU_GRACE) is lost, like any other
 * device. */
#include "device/cuda/context/context.h"
#include "core/activity.h"
#include "core/threads.h"
#include "device/worker.h"
#include <time.h>

/* Seconds of polling without pauses; the longest pause in seconds; a pause's share of the time
 * waited. */
static const double SPIN = 1e-4, MOST_PAUSE = 2e-3, SHARE = 0.05;

static bool was_interrupted(void *context) {
    (void)context;
    return !mg_worker_is_own() && mg_interrupt_take();
}

const mg_cuda_stop mg_cuda_on_interrupt = {was_interrupted, NULL};

static void pause_for(double waited) {
    const double seconds = waited * SHARE < MOST_PAUSE ? waited * SHARE : MOST_PAUSE;
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* Polls the event until it has come: *r is then not CUDA_ERROR_NOT_READY. */
static mg_status poll(mg_device *d, CUevent event, const mg_cuda_stop *stop, CUresult *result) {
    mg_cuda *s = d->state;
    CUresult r = *result;
    const double start = mg_seconds();
    while (r == CUDA_ERROR_NOT_READY) {
        const double waited = mg_seconds() - start;
        if (stop && stop->is_asked(stop->context)) {
            s->interrupted = true;
            return mg_fail(MG_INTERRUPTED, "interrupted");
        }
        if (waited > mg_deadline() + mg_grace()) return mg_device_give_up(d, waited);
        if (waited > SPIN) pause_for(waited);
        r = mg_cu.cuEventQuery(event);
    }
    *result = r;
    return MG_OK;
}

mg_status mg_cuda_wait(mg_device *d, CUevent event, const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    CUresult r = mg_cu.cuEventQuery(event);
    if (r == CUDA_ERROR_NOT_READY) {
        const int depth =
            mg_activity_enter(&(mg_span){.kind = MG_SPAN_WAIT, .what = "waits", .device = d->name});
        const mg_status status = poll(d, event, stop, &r);
        mg_activity_leave(depth);
        if (status != MG_OK) return status;
    }
    s->interrupted = false;
    return mg_cuda_check(d, r, "wait for the GPU");
}
