/* Rank 0's store: a hash table of keys, each with its value or with the processes that wait for it.
 */
#include "core/alloc.h"
#include "core/threads.h"
#include "world/hub_state.h"
#include <string.h>

typedef struct waiter {
    struct waiter *next;
    mg_link *link;
    uint32_t request;
    double until;
} waiter;

struct mg_hub_entry {
    mg_hub_entry *next;
    char *key;  /* owned */
    void *data; /* owned; NULL: not put yet */
    size_t bytes;
    waiter *waiters;
};

/* FNV-1a */
static size_t bucket_of(const char *key) {
    uint32_t hash = 2166136261u;
    for (; *key; key++) hash = (hash ^ (uint8_t)*key) * 16777619u;
    return hash % MG_HUB_BUCKETS;
}

static mg_hub_entry *find(const mg_hub *h, const char *key) {
    mg_hub_entry *e = h->entries[bucket_of(key)];
    while (e && strcmp(e->key, key) != 0) e = e->next;
    return e;
}

/* Makes it if it is missing. */
static mg_hub_entry *entry_of(mg_hub *h, const char *key) {
    mg_hub_entry *e = find(h, key), **bucket = &h->entries[bucket_of(key)];
    if (e || !(e = mg_alloc_zero(sizeof *e))) return e;
    e->key = mg_strdup(key);
    if (!e->key) {
        mg_free(e);
        return NULL;
    }
    e->next = *bucket;
    return *bucket = e;
}

static void send_value(mg_link *link, uint32_t request, const mg_hub_entry *e) {
    mg_link_send(
        link,
        &(mg_record){
            .kind = MG_RECORD_VALUE, .number = request, .data = e->data, .bytes = e->bytes},
        true);
}

static void drop_waiter(waiter **place) {
    waiter *w = *place;
    *place = w->next;
    w->link->n_waiting--;
    mg_free(w);
}

mg_status mg_hub_store_put(mg_hub *h, const char *key, void *data, size_t bytes) {
    mg_hub_entry *e = entry_of(h, key);
    if (!e) return MG_OOM;
    if (e->data) return MG_USAGE;
    e->data = data;
    e->bytes = bytes;
    while (e->waiters) {
        send_value(e->waiters->link, e->waiters->request, e);
        drop_waiter(&e->waiters);
    }
    pthread_cond_broadcast(&h->changed);
    return MG_OK;
}

bool mg_hub_store_find(const mg_hub *h, const char *key, const void **data, size_t *bytes) {
    const mg_hub_entry *e = find(h, key);
    if (!e || !e->data) return false;
    *data = e->data;
    *bytes = e->bytes;
    return true;
}

mg_status mg_hub_store_await(mg_hub *h, const char *key, mg_link *link, uint32_t request,
                             double until) {
    mg_hub_entry *e = entry_of(h, key);
    if (!e) return MG_OOM;
    if (e->data) {
        send_value(link, request, e);
        return MG_OK;
    }
    waiter *w = mg_alloc(sizeof *w);
    if (!w) return MG_OOM;
    *w = (waiter){e->waiters, link, request, until};
    e->waiters = w;
    link->n_waiting++;
    return MG_OK;
}

void mg_hub_store_forget(mg_hub *h, mg_link *link, double now) {
    if (link && !link->n_waiting) return;
    for (size_t i = 0; i < MG_HUB_BUCKETS; i++)
        for (mg_hub_entry *e = h->entries[i]; e; e = e->next)
            for (waiter **place = &e->waiters; *place;)
                if (link ? (*place)->link == link : (*place)->until < now)
                    drop_waiter(place);
                else
                    place = &(*place)->next;
}

void mg_hub_store_free(mg_hub *h) {
    for (size_t i = 0; i < MG_HUB_BUCKETS; i++)
        while (h->entries[i]) {
            mg_hub_entry *e = h->entries[i];
            h->entries[i] = e->next;
            while (e->waiters) drop_waiter(&e->waiters);
            mg_free(e->data);
            mg_free(e->key);
            mg_free(e);
        }
}
