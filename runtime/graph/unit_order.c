/* A topological order of units, kept up to date while units are joined.
 *
 * The units are in a list in which each comes after those that it depends on; positions, which grow
 * along the list, tell which of two comes first. Let a come before b. A path from a to b through
 * other units can only lead through those between the two. So two searches go through these, one
 * from a through users and one from b through inputs, an edge of each in turn, until they meet or
 * one of them ends. If the search from b ends, what it has met moves to just before a, where b can
 * follow; if the search from a ends, what it has met moves to just behind b. The cost is thus that
 * of the shorter search (compare Pearce and Kelly, "A dynamic topological sort algorithm for
 * directed acyclic graphs", 2006). */
#include "graph/unit_order.h"
#include <stdlib.h>
#include <string.h>

/* The initial distance between positions, and the smallest mean distance after units are put
 * between others: the larger the gaps, the fewer positions change. */
#define GAP ((int64_t)1 << 32)
#define LEAST_GAP ((int64_t)1 << 12)

/* A search from one unit. */
typedef struct search {
    bool through_users; /* else through inputs */
    int start, goal;    /* units */
    int *met;           /* nodes, those of `start` first */
    int n_met, n_start;
    int next, edge; /* the edge to follow next: of met[next] */
    int number;     /* of this search, from 1 */
} search;

typedef struct moved_unit {
    int64_t position;
    int unit;
} moved_unit;

struct mg_unit_order {
    mg_ir *ir;
    int *unit;            /* per node: its unit, which is named by one of its nodes */
    int *next_member;     /* per node: another one of its unit, in a circle */
    int64_t *position;    /* per unit */
    int *before, *behind; /* per unit: its neighbors in the list; ir->n stands for both ends */
    int *users;           /* those of node i are users[first_user[i] .. first_user[i + 1]) */
    int *first_user;
    int *met_by; /* per unit: the number of the last search that has met it */
    int n_searches;
    search forward, backward;
    moved_unit *moved;
};

/* ---- at first ---- */

/* Lists the users of all nodes. Dead nodes use nothing. */
static mg_status list_users(mg_unit_order *o) {
    const mg_ir *ir = o->ir;
    int *end = o->first_user + 1; /* first the counts, then where the lists of the nodes end */
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_in && mg_is_live(&ir->nodes[i]); k++)
            end[ir->nodes[i].in[k]]++;
    for (int i = 0; i < ir->n; i++) end[i] += o->first_user[i];
    o->users = mg_ir_alloc(o->ir, (size_t)o->first_user[ir->n] * sizeof *o->users);
    if (!o->users) return MG_OOM;
    int *at = o->forward.met; /* free until the first search */
    memcpy(at, o->first_user, (size_t)ir->n * sizeof *at);
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_in && mg_is_live(&ir->nodes[i]); k++)
            o->users[at[ir->nodes[i].in[k]]++] = i;
    return MG_OK;
}

static mg_status allocate(mg_unit_order *o) {
    const size_t n = (size_t)o->ir->n + 1;
    o->unit = mg_ir_alloc(o->ir, n * sizeof *o->unit);
    o->next_member = mg_ir_alloc(o->ir, n * sizeof *o->next_member);
    o->position = mg_ir_alloc(o->ir, n * sizeof *o->position);
    o->before = mg_ir_alloc(o->ir, n * sizeof *o->before);
    o->behind = mg_ir_alloc(o->ir, n * sizeof *o->behind);
    o->first_user = mg_ir_alloc(o->ir, n * sizeof *o->first_user);
    o->met_by = mg_ir_alloc(o->ir, n * sizeof *o->met_by);
    o->moved = mg_ir_alloc(o->ir, n * sizeof *o->moved);
    o->forward.met = mg_ir_alloc(o->ir, n * sizeof *o->forward.met);
    o->backward.met = mg_ir_alloc(o->ir, n * sizeof *o->backward.met);
    return o->unit && o->next_member && o->position && o->before && o->behind && o->first_user &&
                   o->met_by && o->moved && o->forward.met && o->backward.met
               ? MG_OK
               : MG_OOM;
}

/* The nodes are in a topological order already. */
mg_unit_order *mg_unit_order_new(mg_ir *ir) {
    mg_unit_order *o = mg_ir_alloc(ir, sizeof *o);
    if (!o) return NULL;
    o->ir = ir;
    o->forward.through_users = true;
    if (allocate(o) != MG_OK || list_users(o) != MG_OK) return NULL;
    for (int i = 0; i <= ir->n; i++) {
        o->unit[i] = o->next_member[i] = i;
        o->position[i] = (i + 1) * GAP;
        o->before[i] = i ? i - 1 : ir->n;
        o->behind[i] = i < ir->n ? i + 1 : 0;
    }
    return o;
}

/* ---- searching ---- */

/* The search goes on from all nodes of the unit. */
static void enter_unit(mg_unit_order *o, search *s, int unit) {
    int node = unit;
    o->met_by[unit] = s->number;
    do {
        s->met[s->n_met++] = node;
        node = o->next_member[node];
    } while (node != unit);
}

static void start_search(mg_unit_order *o, search *s, int start, int goal) {
    s->number = ++o->n_searches;
    s->start = start;
    s->goal = goal;
    s->next = s->edge = s->n_met = 0;
    enter_unit(o, s, start);
    s->n_start = s->n_met;
}

/* Whether the unit's position lies between those of start and goal. */
static bool is_between(const mg_unit_order *o, const search *s, int unit) {
    return s->through_users ? o->position[unit] < o->position[s->goal]
                            : o->position[unit] > o->position[s->goal];
}

/* The node at the other end of the next edge, or -1: there is none left. */
static int next_neighbor(const mg_unit_order *o, search *s) {
    for (; s->next < s->n_met; s->next++, s->edge = 0) {
        const int node = s->met[s->next];
        const mg_node *n = &o->ir->nodes[node];
        const int *list = s->through_users ? &o->users[o->first_user[node]] : n->in;
        const int count =
            s->through_users ? o->first_user[node + 1] - o->first_user[node] : n->n_in;
        if (s->edge < count) return list[s->edge++];
    }
    return -1;
}

typedef enum outcome { GOES_ON, HAS_ENDED, HAS_MET } outcome;

/* Follows one edge. An edge from start to goal itself is no path through others. */
static outcome follow_edge(mg_unit_order *o, search *s, const search *other) {
    const int node = next_neighbor(o, s);
    if (node < 0) return HAS_ENDED;
    const int unit = o->unit[node];
    if (unit == s->goal) return s->next < s->n_start ? GOES_ON : HAS_MET;
    if (!is_between(o, s, unit) || o->met_by[unit] == s->number) return GOES_ON;
    if (o->met_by[unit] == other->number) return HAS_MET;
    enter_unit(o, s, unit);
    return GOES_ON;
}

/* The search that has ended without meeting the other one; NULL if a path leads from a to b. */
static const search *find_ended(mg_unit_order *o, int a, int b) {
    search *forward = &o->forward, *backward = &o->backward;
    start_search(o, forward, a, b);
    start_search(o, backward, b, a);
    for (;;) {
        outcome now = follow_edge(o, backward, forward);
        if (now != GOES_ON) return now == HAS_ENDED ? backward : NULL;
        now = follow_edge(o, forward, backward);
        if (now != GOES_ON) return now == HAS_ENDED ? forward : NULL;
    }
}

/* ---- moving ---- */

static int by_position(const void *a, const void *b) {
    const int64_t x = ((const moved_unit *)a)->position, y = ((const moved_unit *)b)->position;
    return x < y ? -1 : x > y;
}

static void take_out(mg_unit_order *o, int unit) {
    o->behind[o->before[unit]] = o->behind[unit];
    o->before[o->behind[unit]] = o->before[unit];
}

static void put_behind(mg_unit_order *o, int place, int unit) {
    const int next = o->behind[place];
    o->before[unit] = place;
    o->behind[unit] = next;
    o->behind[place] = o->before[next] = unit;
}

/* The n units between `first` and `last` get positions with equal gaps. If there is too little
 * room, units before them get new positions too. */
static void spread_positions(mg_unit_order *o, int first, int last, int n) {
    const int end = o->ir->n;
    const int64_t upper = last == end ? o->position[first] + GAP : o->position[last];
    int64_t lower, gap;
    for (;; first = o->before[first], n++) {
        lower = first == end ? upper - GAP : o->position[first];
        gap = (upper - lower) / (n + 1);
        if (gap >= LEAST_GAP || first == end) break;
    }
    for (int u = o->behind[first]; u != last; u = o->behind[u]) o->position[u] = lower += gap;
}

/* Moves the units that the search has met, in their order, to just behind `place`. */
static void move_met(mg_unit_order *o, const search *s, int place) {
    int n = 0;
    for (int i = s->n_start; i < s->n_met; i++)
        if (o->unit[s->met[i]] == s->met[i])
            o->moved[n++] = (moved_unit){o->position[s->met[i]], s->met[i]};
    if (n == 0) return;
    qsort(o->moved, (size_t)n, sizeof *o->moved, by_position);
    const int next = o->behind[place];
    for (int i = 0; i < n; i++) {
        take_out(o, o->moved[i].unit);
        put_behind(o, i ? o->moved[i - 1].unit : place, o->moved[i].unit);
    }
    spread_positions(o, place, next, n);
}

/* The nodes of unit `from` become nodes of unit `to`, at the latter's place in the list. */
static void merge_units(mg_unit_order *o, int to, int from) {
    take_out(o, from);
    int node = from;
    do {
        o->unit[node] = to;
        node = o->next_member[node];
    } while (node != from);
    const int next = o->next_member[from];
    o->next_member[from] = o->next_member[to];
    o->next_member[to] = next;
}

bool mg_unit_order_join(mg_unit_order *o, int node_a, int node_b) {
    int a = o->unit[node_a], b = o->unit[node_b];
    if (o->position[a] > o->position[b]) a = o->unit[node_b], b = o->unit[node_a];
    const search *ended = find_ended(o, a, b);
    if (!ended) return false;
    move_met(o, ended, ended->through_users ? b : o->before[a]);
    merge_units(o, ended->goal, ended->start);
    return true;
}
