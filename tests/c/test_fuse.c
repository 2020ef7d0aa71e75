/* Fused groups (graph/fuse.c, graph/unit_order.c) of random graphs, against their rules in plain
 * loops. */
#include "core/alloc.h"
#include "graph/ir.h"
#include "graph/unit_order.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SMALL = 150, LARGE = 6000 };

/* ---- random graphs ---- */

/* What random_ir makes: the chances are in percent. */
typedef struct recipe {
    int n, reach;                 /* nodes; how far behind its users an input may be */
    int opaque, wide, bent, root; /* not element-wise; float64; of another shape; roots */
} recipe;

static bool chance(int percent) {
    return rand() % 100 < percent;
}

/* An op with inputs among the nodes before it. */
static void random_op(mg_ir *ir, int i, const recipe *r) {
    static const char *const names[] = {"tanh", "add", "mul", "where"};
    mg_node *n = &ir->nodes[i];
    const int pick = rand() % 4;
    n->kind = MG_NODE_OP;
    n->op = mg_op_find(chance(r->opaque) ? "matmul" : names[pick]);
    n->n_in = n->op->elementwise && pick != 1 && pick != 2 ? (pick ? 3 : 1) : 2;
    n->in = mg_ir_alloc(ir, 3 * sizeof *n->in);
    for (int k = 0; k < n->n_in; k++) {
        const int reach = chance(80) && r->reach < i ? r->reach : i;
        n->in[k] = i - 1 - rand() % reach;
    }
}

static void random_ir(mg_ir *ir, const recipe *r) {
    *ir = (mg_ir){.n = r->n};
    ir->nodes = mg_ir_alloc(ir, (size_t)r->n * sizeof *ir->nodes);
    ir->roots = mg_ir_alloc(ir, (size_t)r->n * sizeof *ir->roots);
    for (int i = 0; i < r->n; i++) {
        mg_node *n = &ir->nodes[i];
        n->dtype = chance(r->wide) ? MG_F64 : MG_F32;
        n->shape = chance(r->bent) ? (mg_shape)MG_SHAPE(3, 1) : (mg_shape)MG_SHAPE(3, 4);
        n->forward = n->group = -1;
        n->kind = chance(30) ? MG_NODE_LITERAL : MG_NODE_VALUE;
        if (i > 3 && !chance(8)) random_op(ir, i, r);
        if (i == r->n - 1 || chance(r->root))
            ir->roots[ir->n_roots++] = (mg_root){.node = i, .commit = chance(50)};
    }
    mg_ir_count_uses(ir);
}

/* ---- the rules of groups ---- */

/* Which nodes are together: nodes of one number, from 0; -1: in no group. */
typedef struct grouping {
    const mg_ir *ir;
    int *group;
    bool *commit_only;
} grouping;

static bool is_fusible(const mg_node *n) {
    return mg_is_live(n) && n->kind == MG_NODE_OP && n->op->elementwise;
}

/* A node that is no root needed earlier, and whose users are all left to the commit phase. */
static void find_commit_only(const mg_ir *ir, bool *commit_only) {
    for (int i = ir->n - 1; i >= 0; i--) {
        commit_only[i] = is_fusible(&ir->nodes[i]);
        for (int r = 0; r < ir->n_roots; r++)
            commit_only[i] &= ir->roots[r].node != i || ir->roots[r].commit;
        for (int u = i + 1; u < ir->n; u++)
            for (int k = 0; k < ir->nodes[u].n_in && mg_is_live(&ir->nodes[u]); k++)
                commit_only[i] &= ir->nodes[u].in[k] != i || commit_only[u];
    }
}

static bool is_wide(const mg_ir *ir, int node) {
    const mg_node *n = &ir->nodes[node];
    bool wide = n->dtype == MG_F64;
    for (int k = 0; k < n->n_in; k++)
        wide |= ir->nodes[n->in[k]].kind != MG_NODE_LITERAL && ir->nodes[n->in[k]].dtype == MG_F64;
    return wide;
}

/* Whether a member reads the node, and how often all of them do. */
static int uses_inside(const grouping *g, const bool *member, int node) {
    int uses = 0;
    for (int i = 0; i < g->ir->n; i++)
        for (int k = 0; k < g->ir->nodes[i].n_in && member[i]; k++)
            uses += g->ir->nodes[i].in[k] == node;
    return uses;
}

/* Whether the members fit into one expression. */
static bool is_within_limits(const grouping *g, const bool *member) {
    int n_members = 0, n_in = 0, n_out = 0, n_literals = 0;
    for (int i = 0; i < g->ir->n; i++) {
        const int uses = uses_inside(g, member, i);
        n_members += member[i];
        n_out += member[i] && g->ir->nodes[i].uses > uses;
        if (g->ir->nodes[i].kind == MG_NODE_LITERAL)
            n_literals += uses;
        else
            n_in += !member[i] && uses > 0;
    }
    return n_members <= MG_FUSE_MAX_INSTRS && n_literals <= MG_FUSE_MAX_INSTRS &&
           n_in <= MG_FUSE_MAX_INPUTS && n_out <= MG_FUSE_MAX_OUTPUTS;
}

/* Marks the node and all that are in its group. */
static void mark_group(const mg_ir *ir, const int *group, int node, bool *marked) {
    for (int i = 0; i < ir->n; i++)
        marked[i] |= i == node || (group[i] >= 0 && group[i] == group[node]);
}

/* Whether a path leads out of the members and back in. `after` marks the nodes that depend on a
 * member; a node of a group depends on every input of the group. */
static bool leads_back(const mg_ir *ir, const int *group, const bool *member) {
    bool *after = mg_alloc_zero((size_t)ir->n + 1), back = false;
    for (bool grows = true; grows;) {
        grows = false;
        for (int i = 0; i < ir->n; i++) {
            bool reached = false;
            for (int k = 0; k < ir->nodes[i].n_in && !member[i] && mg_is_live(&ir->nodes[i]); k++)
                reached |= member[ir->nodes[i].in[k]] || after[ir->nodes[i].in[k]];
            if (!reached || after[i]) continue;
            mark_group(ir, group, i, after);
            grows = true;
        }
    }
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_in && member[i]; k++) back |= after[ir->nodes[i].in[k]];
    mg_free(after);
    return back;
}

/* Joins the groups of nodes a and b, under the number of a's, if that is allowed. */
static void join(grouping *g, int a, int b) {
    const int to = g->group[a], from = g->group[b];
    if (to < 0 || to == from) return;
    bool *member = mg_alloc_zero((size_t)g->ir->n + 1);
    for (int i = 0; i < g->ir->n; i++) member[i] = g->group[i] == to || g->group[i] == from;
    const bool alike = mg_shape_equal(&g->ir->nodes[a].shape, &g->ir->nodes[b].shape) &&
                       g->commit_only[a] == g->commit_only[b] &&
                       is_wide(g->ir, a) == is_wide(g->ir, b);
    if (alike && is_within_limits(g, member) && !leads_back(g->ir, g->group, member))
        for (int i = 0; i < g->ir->n; i++)
            if (g->group[i] == from) g->group[i] = to;
    mg_free(member);
}

/* Joins each node with its producers, then with the last node that reads the same value. */
static void group_plainly(grouping *g) {
    const mg_ir *ir = g->ir;
    int *reader = mg_alloc((size_t)ir->n * sizeof *reader);
    find_commit_only(ir, g->commit_only);
    for (int i = 0; i < ir->n; i++) g->group[i] = is_fusible(&ir->nodes[i]) ? i : -1;
    for (int i = 0; i < ir->n; i++) reader[i] = -1;
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_in && g->group[i] >= 0; k++)
            join(g, ir->nodes[i].in[k], i);
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_in && g->group[i] >= 0 && !g->commit_only[i]; k++) {
            const int in = ir->nodes[i].in[k], other = reader[in];
            if (ir->nodes[in].kind == MG_NODE_LITERAL ||
                !mg_shape_equal(&ir->nodes[in].shape, &ir->nodes[i].shape))
                continue;
            reader[in] = i;
            if (other >= 0) join(g, other, i);
        }
    mg_free(reader);
}

static const recipe recipes[] = {
    {.n = 60, .reach = 8, .opaque = 30, .root = 10},
    {.n = SMALL, .reach = 5, .opaque = 5, .root = 1}, /* few, long groups */
    {.n = SMALL, .reach = 40, .opaque = 20, .root = 3},
    {.n = SMALL, .reach = 12, .opaque = 12, .wide = 5, .bent = 10, .root = 5},
    {.n = SMALL, .reach = 3, .opaque = 10, .root = 60}, /* many outputs */
};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

static void groups_are_those_of_the_rules(void **state) {
    (void)state;
    int group[SMALL], number[SMALL], n_joined = 0;
    bool commit_only[SMALL];
    srand(1);
    for (int round = 0; round < 200; round++) {
        mg_ir ir;
        mg_groups groups;
        random_ir(&ir, &recipes[round % RECIPES]);
        grouping plain = {.ir = &ir, .group = group, .commit_only = commit_only};
        group_plainly(&plain);
        assert_int_equal(mg_fuse(&ir, true, &groups), MG_OK);
        /* A group has the number of the first node that was its only member, without gaps. */
        memset(number, 0, sizeof number);
        for (int i = 0; i < ir.n; i++)
            if (group[i] >= 0) number[group[i]] = 1;
        for (int i = 0, n = 0; i < ir.n; i++) number[i] = number[i] ? n++ : -1;
        for (int i = 0; i < ir.n; i++)
            assert_int_equal(ir.nodes[i].group, group[i] < 0 ? -1 : number[group[i]]);
        for (int i = 0; i < groups.n; i++) n_joined += groups.items[i]->n_members > 1;
        mg_ir_free(&ir);
    }
    assert_true(n_joined > 1000); /* else the graphs test nothing */
}

/* Whether all inputs of the node have run, or lie in the group that it is in. */
static bool can_run(const mg_ir *ir, const bool *has_run, int node) {
    const mg_node *n = &ir->nodes[node];
    bool ready = true;
    for (int k = 0; k < n->n_in; k++)
        ready &= has_run[n->in[k]] || (n->group >= 0 && ir->nodes[n->in[k]].group == n->group);
    return ready;
}

/* Runs every ready node, and each group as a whole, until none is ready. By then all live nodes
 * must have run. */
static void assert_no_circle(const mg_ir *ir, const mg_groups *groups) {
    bool *has_run = mg_alloc_zero((size_t)ir->n);
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int i = 0; i < ir->n; i++) {
            const mg_group *g = ir->nodes[i].group >= 0 ? groups->items[ir->nodes[i].group] : NULL;
            bool ready = !has_run[i] && can_run(ir, has_run, i);
            for (int k = 0; g && k < g->n_members && ready; k++)
                ready = can_run(ir, has_run, g->members[k]);
            if (!ready) continue;
            has_run[i] = goes_on = true;
            for (int k = 0; g && k < g->n_members; k++) has_run[g->members[k]] = true;
        }
    }
    for (int i = 0; i < ir->n; i++) assert_true(has_run[i] || !mg_is_live(&ir->nodes[i]));
    mg_free(has_run);
}

/* Every live element-wise op is a member of the group that its node names; groups keep the limits.
 */
static void assert_valid(const mg_ir *ir, const mg_groups *groups) {
    int n_members = 0, n_fusible = 0;
    for (int i = 0; i < ir->n; i++) n_fusible += is_fusible(&ir->nodes[i]);
    for (int i = 0; i < groups->n; i++) {
        const mg_group *g = groups->items[i];
        const mg_node *first = &ir->nodes[g->members[0]];
        n_members += g->n_members;
        assert_in_range(g->n_members, 1, MG_FUSE_MAX_INSTRS);
        assert_in_range(g->expr.n_inputs, 0, MG_FUSE_MAX_INPUTS);
        assert_in_range(g->expr.n_imms, 0, MG_FUSE_MAX_INSTRS);
        assert_in_range(g->expr.n_outputs, 1, MG_FUSE_MAX_OUTPUTS);
        for (int k = 0; k < g->n_members; k++) {
            assert_int_equal(ir->nodes[g->members[k]].group, i);
            assert_true(mg_shape_equal(&ir->nodes[g->members[k]].shape, &first->shape));
            assert_int_equal(is_wide(ir, g->members[k]), g->expr.wide);
            assert_true(k == 0 || g->members[k - 1] < g->members[k]);
        }
    }
    assert_int_equal(n_members, n_fusible);
}

static void groups_of_large_graphs_can_run(void **state) {
    (void)state;
    srand(2);
    for (int round = 0; round < 2 * RECIPES; round++) {
        recipe r = recipes[round % RECIPES];
        mg_ir ir;
        mg_groups groups;
        r.n = LARGE;
        r.reach *= round < RECIPES ? 1 : 20;
        random_ir(&ir, &r);
        assert_int_equal(mg_fuse(&ir, true, &groups), MG_OK);
        assert_valid(&ir, &groups);
        assert_no_circle(&ir, &groups);
        mg_ir_free(&ir);
    }
}

/* ---- joining random units ---- */

static void units_are_joined_unless_a_path_leads_out_and_back(void **state) {
    (void)state;
    int unit[SMALL], n_joined = 0, n_refused = 0;
    bool member[SMALL];
    srand(3);
    for (int round = 0; round < 100; round++) {
        mg_ir ir;
        const recipe r = {.n = 20 + rand() % (SMALL - 20), .reach = 1 + rand() % 20, .root = 20};
        random_ir(&ir, &r);
        mg_unit_order *order = mg_unit_order_new(&ir);
        for (int i = 0; i < ir.n; i++) unit[i] = i;
        for (int i = 0; i < 2 * ir.n; i++) {
            const int a = rand() % ir.n, b = rand() % ir.n, to = unit[a], from = unit[b];
            if (!mg_is_live(&ir.nodes[a]) || !mg_is_live(&ir.nodes[b]) || to == from) continue;
            for (int k = 0; k < ir.n; k++) member[k] = unit[k] == to || unit[k] == from;
            const bool joined = mg_unit_order_join(order, a, b);
            assert_int_equal(joined, !leads_back(&ir, unit, member));
            for (int k = 0; k < ir.n && joined; k++)
                if (unit[k] == from) unit[k] = to;
            n_joined += joined, n_refused += !joined;
        }
        mg_ir_free(&ir);
    }
    assert_true(n_joined > 500 && n_refused > 500);
}

/* A hub with users, then a chain; a leaf hangs on each link of it. Each leaf joins the hub, so its
 * link must come before the hub: so many links move to one place that the gaps get too small and
 * units before it get new positions. */
static void many_units_move_to_one_place(void **state) {
    (void)state;
    enum { HUB_USERS = 8, FIRST = 1 + HUB_USERS, LINKS = 100, N = FIRST + 2 * LINKS };
    mg_ir ir = {.n = N};
    mg_root roots[N];
    mg_node nodes[N] = {0};
    int in[N];
    for (int i = 0; i < N; i++) {
        const bool is_first = i == 0 || i == FIRST; /* of hub and chain */
        const bool is_leaf = i >= FIRST && (i - FIRST) % 2;
        in[i] = i < FIRST ? 0 : is_leaf ? i - 1 : i - 2;
        nodes[i] = (mg_node){.kind = is_first ? MG_NODE_VALUE : MG_NODE_OP, .in = &in[i]};
        nodes[i].op = mg_op_find("tanh");
        nodes[i].n_in = !is_first;
        nodes[i].forward = nodes[i].group = -1;
        roots[i] = (mg_root){.node = i};
    }
    ir.nodes = nodes, ir.roots = roots, ir.n_roots = N;
    mg_ir_count_uses(&ir);
    mg_unit_order *order = mg_unit_order_new(&ir);
    for (int i = FIRST + 1; i < N; i += 2) assert_true(mg_unit_order_join(order, 0, i));
    /* A further link is between these. */
    for (int i = FIRST; i + 4 < N; i += 2) assert_false(mg_unit_order_join(order, i + 4, i));
    mg_ir_free(&ir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_those_of_the_rules),
        cmocka_unit_test(groups_of_large_graphs_can_run),
        cmocka_unit_test(units_are_joined_unless_a_path_leads_out_and_back),
        cmocka_unit_test(many_units_move_to_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
