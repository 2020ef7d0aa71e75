/* The list of all variables, and a summary of what lies on a device. */
#include "core/memory_report.h"
#include "core/variable.h"
#include "device/device.h"
#include <pthread.h>
#include <stdio.h>

enum { LARGEST = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_variable *first;

void mg_memory_report_add(mg_variable *v) {
    pthread_mutex_lock(&lock);
    v->next = first;
    if (first) first->previous = v;
    first = v;
    pthread_mutex_unlock(&lock);
}

void mg_memory_report_remove(mg_variable *v) {
    pthread_mutex_lock(&lock);
    if (v->next) v->next->previous = v->previous;
    if (v->previous) v->previous->next = v->next;
    if (first == v) first = v->next;
    pthread_mutex_unlock(&lock);
}

static size_t bytes_on(const mg_variable *v, const mg_device *d) {
    size_t bytes = v->value->device == d && v->value->buffer ? v->value->buffer->bytes : 0;
    for (int i = 0; i < v->n_replicas; i++)
        if (v->replicas[i].device == d) bytes += mg_tensor_bytes(v->replicas[i].value);
    return bytes;
}

typedef struct owner {
    const char *name;
    size_t bytes;
} owner;

/* The sum, and the largest in falling order. */
static size_t add_up(const mg_device *d, owner top[LARGEST]) {
    size_t sum = 0;
    for (const mg_variable *v = first; v; v = v->next) {
        owner o = {v->name, bytes_on(v, d)};
        sum += o.bytes;
        for (int i = 0; i < LARGEST; i++) {
            if (o.bytes <= top[i].bytes) continue;
            const owner smaller = top[i];
            top[i] = o;
            o = smaller;
        }
    }
    return sum;
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

void mg_memory_report_describe(mg_device *d, char *text, size_t size) {
    owner top[LARGEST] = {{0}};
    size_t at = 0;
    pthread_mutex_lock(&lock);
    const size_t variables = add_up(d, top), known = variables + d->arena_bytes;
    const size_t used = (size_t)atomic_load(&d->used);
    at = (size_t)snprintf(text, size, "work space of plans %.1f MiB, variables %.1f MiB",
                          mib(d->arena_bytes), mib(variables));
    for (int i = 0; i < LARGEST && top[i].bytes && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s %.1f MiB",
                               i ? ", " : " (largest: ", top[i].name, mib(top[i].bytes));
    pthread_mutex_unlock(&lock);
    if (at < size)
        snprintf(text + at, size - at, "%sother tensors %.1f MiB", top[0].bytes ? "), " : ", ",
                 mib(used > known ? used - known : 0));
}
