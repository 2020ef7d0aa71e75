/* A hash table with open addressing over an array of names. */
#include "data/sources/csv.h"
#include "core/alloc.h"
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct mg_class_names {
    char **name;   /* owned, like the array */
    int32_t *slot; /* owned: n_slots ids, a power of two and at least twice as many as names; -1:
                      empty */
    int n, room;
    size_t n_slots;
};

mg_class_names *mg_class_names_new(void) {
    return mg_alloc_zero(sizeof(mg_class_names));
}

void mg_class_names_free(mg_class_names *c) {
    if (!c) return;
    for (int i = 0; i < c->n; i++) mg_free(c->name[i]);
    mg_free(c->name);
    mg_free(c->slot);
    mg_free(c);
}

int32_t mg_class_names_count(const mg_class_names *c) {
    return c->n;
}

const char *mg_class_names_get(const mg_class_names *c, int32_t id) {
    return c->name[id];
}

/* The slot that has the name, or the empty slot where it would be inserted. */
static int32_t *slot_of(const mg_class_names *c, const char *name) {
    size_t i = XXH3_64bits(name, strlen(name)) & (c->n_slots - 1);
    while (c->slot[i] >= 0 && strcmp(c->name[c->slot[i]], name) != 0)
        i = (i + 1) & (c->n_slots - 1);
    return &c->slot[i];
}

int32_t mg_class_names_find(const mg_class_names *c, const char *name) {
    return c->n_slots ? *slot_of(c, name) : -1;
}

/* Enters all names into the slots again. */
static void fill_slots(mg_class_names *c) {
    for (size_t i = 0; i < c->n_slots; i++) c->slot[i] = -1;
    for (int i = 0; i < c->n; i++) *slot_of(c, c->name[i]) = i;
}

static mg_status grow_slots(mg_class_names *c) {
    const size_t n = c->n_slots ? 2 * c->n_slots : 64;
    int32_t *slot = mg_realloc(c->slot, n * sizeof *slot);
    if (!slot) return MG_OOM;
    c->slot = slot;
    c->n_slots = n;
    fill_slots(c);
    return MG_OK;
}

mg_status mg_class_names_add(mg_class_names *c, const char *name, int32_t *id) {
    *id = mg_class_names_find(c, name);
    if (*id >= 0) return MG_OK;
    if (2 * ((size_t)c->n + 1) > c->n_slots) MG_TRY(grow_slots(c));
    MG_TRY(mg_reserve((void **)&c->name, c->n, &c->room, sizeof *c->name));
    char *copy = mg_strdup(name);
    if (!copy) return MG_OOM;
    *id = c->n;
    *slot_of(c, name) = c->n;
    c->name[c->n++] = copy;
    return MG_OK;
}

typedef struct entry {
    char *name;
    int32_t old;
} entry;

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

mg_status mg_class_names_sort(mg_class_names *c, int32_t *map) {
    entry *e = mg_alloc((size_t)c->n * sizeof *e);
    if (!e) return MG_OOM;
    for (int i = 0; i < c->n; i++) e[i] = (entry){c->name[i], i};
    qsort(e, (size_t)c->n, sizeof *e, compare_entries);
    for (int i = 0; i < c->n; i++) {
        c->name[i] = e[i].name;
        map[e[i].old] = i;
    }
    mg_free(e);
    fill_slots(c);
    return MG_OK;
}
