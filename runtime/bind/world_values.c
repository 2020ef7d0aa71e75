/* What the ranks of the world do with values: compare and send those of variables, add up tensors.
 *
 * Values go through the host. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "graph/joint.h"
#include "world/values.h"
#include "world/world.h"
#include <string.h>

/* ---- variables ---- */

/* The variables of the table at index 1, which stay in it. *n: how many. */
static mg_variable **take_variables(lua_State *L, const char *who, int *n) {
    luaL_checktype(L, 1, LUA_TTABLE);
    *n = (int)lua_objlen(L, 1);
    mg_variable **list = lua_newuserdata(L, (size_t)(*n + 1) * sizeof(mg_variable *));
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, 1, i + 1);
        list[i] = bind_to_variable(L, -1);
        if (!list[i])
            bind_fail(L, MG_USAGE, "%s: entry %d is a %s, not a variable", who, i + 1,
                      luaL_typename(L, -1));
        lua_pop(L, 1);
    }
    return list;
}

/* The variable's value as bytes on the host, from rank `root`; elsewhere it becomes the
 * variable's. */
static mg_status send_value(mg_variable *v, int root, char *bytes, size_t n) {
    if (mg_world_rank() == root) MG_TRY(mg_tensor_read(v->value, bytes));
    MG_TRY(mg_world_broadcast(root, bytes, n));
    if (mg_world_rank() == root) return MG_OK;
    mg_tensor *t =
        mg_tensor_from_host(bytes, (mg_dtype)v->value->dtype, &v->value->shape, v->value->device);
    return t ? mg_variable_set(v, t) : mg_error_code();
}

/* world_send_values(variables, root = 0): they get the values that they have on that rank. */
static int core_world_send_values(lua_State *L) {
    int n;
    const int root = (int)luaL_optinteger(L, 2, 0);
    if (root < 0 || root >= mg_world_size())
        return bind_fail(L, MG_USAGE, "world_send_values: there is no rank %d", root);
    mg_variable **list = take_variables(L, "world_send_values", &n);
    for (int i = 0; i < n; i++) {
        const size_t size = mg_tensor_bytes(list[i]->value);
        char *bytes = lua_newuserdata(L, size + 1);
        bind_check(L, send_value(list[i], root, bytes, size));
        lua_pop(L, 1);
    }
    return 0;
}

/* world_differing(variables) -> the numbers of those of which some rank has another value than rank
 * 0. All ranks call it. */
static int core_world_differing(lua_State *L) {
    int n;
    mg_variable **list = take_variables(L, "world_differing", &n);
    bool *differs = lua_newuserdata(L, (size_t)n + 1);
    bind_check(L, mg_joint_find_differing(list, n, differs));
    lua_newtable(L);
    for (int i = 0; i < n; i++) {
        if (!differs[i]) continue;
        lua_pushinteger(L, i + 1);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
    return 1;
}

/* variable_changes(v) -> how often the variable has got a new value. */
static int core_variable_changes(lua_State *L) {
    const mg_variable *v = bind_to_variable(L, 1);
    if (!v)
        return bind_fail(L, MG_USAGE, "variable_changes: expected a variable, got a %s",
                         luaL_typename(L, 1));
    lua_pushnumber(L, (double)v->n_changes);
    return 1;
}

/* ---- tensors of all ranks ---- */

enum exchange { SUM, SWAP, SUM_LARGEST };

typedef struct values { /* of one dtype: elements of tensors, and what the exchange makes of them */
    mg_tensor **list;   /* borrowed */
    int n;
    mg_dtype dtype;
    int64_t count; /* elements of all */
    char *own, *result;
} values;

typedef struct task {
    enum exchange kind;
    int peer;        /* SWAP: a rank, or -1 */
    double fraction; /* SUM_LARGEST: of the elements of each tensor */
    mg_tensor **list;
    int n;
    size_t bytes;                   /* of all */
    mg_tensor ***results, ***rests; /* places for what comes out; rests: SUM_LARGEST */
} task;

/* The tensors of the table at index 1, computed. */
static void take_tensors(lua_State *L, task *x) {
    luaL_checktype(L, 1, LUA_TTABLE);
    x->n = (int)lua_objlen(L, 1);
    x->list = lua_newuserdata(L, (size_t)(x->n + 1) * sizeof(mg_tensor *));
    for (int i = 0; i < x->n; i++) {
        lua_rawgeti(L, 1, i + 1);
        x->list[i] = bind_to_tensor(L, -1);
        if (!x->list[i])
            bind_fail(L, MG_USAGE, "values of all ranks: entry %d is a %s, not a tensor", i + 1,
                      luaL_typename(L, -1));
        lua_pop(L, 1);
        x->bytes += mg_tensor_bytes(x->list[i]);
    }
    bind_eval(L, x->list, x->n);
}

/* Pushes a table of n empty tensors and, below it, the array of their places. */
static mg_tensor ***push_places(lua_State *L, int n) {
    mg_tensor ***places = lua_newuserdata(L, (size_t)(n + 1) * sizeof(mg_tensor **));
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        places[i] = bind_new_tensor(L);
        lua_rawseti(L, -2, i + 1);
    }
    return places;
}

/* Of the tensors from list[0] on that have its dtype. v->own is the caller's, also on failure. */
static mg_status read_values(values *v, mg_tensor **list, int n) {
    *v = (values){.list = list, .dtype = (mg_dtype)list[0]->dtype};
    while (v->n < n && (mg_dtype)list[v->n]->dtype == v->dtype)
        v->count += mg_shape_count(&list[v->n++]->shape);
    const size_t bytes = (size_t)v->count * mg_dtype_size(v->dtype);
    v->own = mg_alloc(2 * bytes + 1);
    if (!v->own) return MG_OOM;
    v->result = v->own + bytes;
    char *to = v->own;
    for (int i = 0; i < v->n; to += mg_tensor_bytes(list[i++])) MG_TRY(mg_tensor_read(list[i], to));
    return MG_OK;
}

/* Of each tensor by itself, so that small ones send something too. */
static mg_status sum_largest(values *v, double fraction) {
    float *own = (float *)(void *)v->own, *total = (float *)(void *)v->result;
    if (v->dtype != MG_F32)
        return mg_fail(MG_USAGE, "the largest gradients: the tensors must be float32");
    for (int i = 0; i < v->n; i++) {
        const int64_t count = mg_shape_count(&v->list[i]->shape);
        const int64_t some = (int64_t)((double)count * fraction), largest = some > 0 ? some : 1;
        if (count > 0) MG_TRY(mg_world_sum_largest(own, total, count, largest));
        own += count;
        total += count;
    }
    return MG_OK;
}

static mg_status exchange(values *v, const task *x) {
    if (x->kind == SUM_LARGEST) return sum_largest(v, x->fraction);
    if (x->kind == SUM) return mg_world_sum(v->own, v->result, v->count, v->dtype);
    const size_t bytes = (size_t)v->count * mg_dtype_size(v->dtype);
    memcpy(v->result, v->own, bytes); /* what a rank without a partner gets */
    return mg_world_swap(x->peer, v->own, v->result, bytes);
}

/* Fills the places with tensors made of the data, shaped and placed as those of v. */
static mg_status make_tensors(const values *v, const char *data, mg_tensor ***places) {
    for (int i = 0; i < v->n; data += mg_tensor_bytes(v->list[i++])) {
        const mg_tensor *like = v->list[i];
        *places[i] = mg_tensor_from_host(data, v->dtype, &like->shape, like->device);
        if (!*places[i]) return mg_error_code();
    }
    return MG_OK;
}

/* Each run of tensors of one dtype at a time. The ranks meet first: all have come to this call with
 * tensors of as many bytes. */
static mg_status exchange_all(const task *x) {
    MG_TRY(mg_world_meet_for_values((int64_t)x->bytes, mg_stop_requested() ? MG_FLAG_STOP : 0));
    mg_status status = MG_OK;
    values v;
    for (int at = 0; at < x->n && status == MG_OK; at += v.n) {
        status = read_values(&v, x->list + at, x->n - at);
        if (status == MG_OK) status = exchange(&v, x);
        if (status == MG_OK) status = make_tensors(&v, v.result, x->results + at);
        if (status == MG_OK && x->rests) status = make_tensors(&v, v.own, x->rests + at);
        mg_free(v.own);
    }
    return status;
}

/* Raises on failure. The garbage collector learns what the results take. */
static void run_task(lua_State *L, const task *x) {
    bind_check(L, exchange_all(x));
    bind_account(L, (x->rests ? 2 : 1) * x->bytes);
}

/* world_sum(tensors) -> their sums over the ranks, on their devices. All ranks call it. */
static int core_world_sum(lua_State *L) {
    task x = {.kind = SUM};
    take_tensors(L, &x);
    x.results = push_places(L, x.n);
    run_task(L, &x);
    return 1;
}

/* world_swap(tensors, peer) -> the tensors that rank `peer` has given. Every rank calls it, those
 * without a partner with -1; they get copies of their own. */
static int core_world_swap(lua_State *L) {
    task x = {.kind = SWAP, .peer = (int)luaL_checkinteger(L, 2)};
    if (x.peer < -1 || x.peer >= mg_world_size() || x.peer == mg_world_rank())
        return bind_fail(L, MG_USAGE, "world_swap: there is no rank %d beside this one", x.peer);
    take_tensors(L, &x);
    x.results = push_places(L, x.n);
    run_task(L, &x);
    return 1;
}

/* world_sum_largest(tensors, fraction) -> the sums over the ranks of the elements of greatest
 * magnitude, so many of each tensor's, at least one; and the tensors with zeros in their places.
 * float32. All ranks call it. */
static int core_world_sum_largest(lua_State *L) {
    task x = {.kind = SUM_LARGEST, .fraction = luaL_checknumber(L, 2)};
    if (!(x.fraction > 0 && x.fraction <= 1))
        return bind_fail(L, MG_USAGE,
                         "world_sum_largest: the fraction must be above 0 and at most "
                         "1");
    take_tensors(L, &x);
    x.results = push_places(L, x.n);
    x.rests = push_places(L, x.n);
    run_task(L, &x);
    lua_pushvalue(L, -3); /* the results, below the places of the rests */
    lua_insert(L, -2);
    return 2;
}

const luaL_Reg mg_bind_world_values[] = {{"world_send_values", core_world_send_values},
                                         {"world_differing", core_world_differing},
                                         {"variable_changes", core_variable_changes},
                                         {"world_sum", core_world_sum},
                                         {"world_swap", core_world_swap},
                                         {"world_sum_largest", core_world_sum_largest},
                                         {NULL, NULL}};
