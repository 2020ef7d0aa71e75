/* Mailboxes in Lua (world/mailbox.h): messages of numbers and tensors between single ranks.
 *
 * A message is an array of numbers and then the values of tensors, one after another. Its form, a
 * count of numbers and an array of variables with the dtypes and shapes of the values, is known on
 * both sides. Values go through the host. */
#include "bind/bind.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "world/mailbox.h"
#include "world/world.h"
#include <string.h>

#define BIND_MAILBOX "mgpu.mailbox"

enum { ALIGNED = 64 }; /* where a value begins in a message: for any dtype, and for fast sums */

typedef struct mailbox {
    mg_mailbox *box; /* owned */
} mailbox;

/* ---- the form of a message ---- */

typedef struct form {
    int n_numbers, n_values;
    mg_variable **like; /* borrowed: dtypes, shapes and devices of the values */
    size_t *at;         /* where each begins; at[n_values]: the length of the message */
} form;

static size_t align(size_t bytes) {
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* The variables of the table at index `like`, which stay in it. Pushes memory. */
static form read_form(lua_State *L, int n_numbers, int like) {
    luaL_checktype(L, like, LUA_TTABLE);
    form f = {.n_numbers = n_numbers, .n_values = (int)lua_objlen(L, like)};
    f.like = lua_newuserdata(L, (size_t)(f.n_values + 1) * sizeof(mg_variable *));
    f.at = lua_newuserdata(L, (size_t)(f.n_values + 1) * sizeof *f.at);
    f.at[0] = align((size_t)n_numbers * sizeof(double));
    for (int i = 0; i < f.n_values; i++) {
        lua_rawgeti(L, like, i + 1);
        f.like[i] = bind_to_variable(L, -1);
        if (!f.like[i])
            bind_fail(L, MG_USAGE, "mailbox: entry %d of the form is a %s, not a variable", i + 1,
                      luaL_typename(L, -1));
        f.at[i + 1] = f.at[i] + align(mg_tensor_bytes(f.like[i]->value));
        lua_pop(L, 1);
    }
    return f;
}

static mailbox *check_mailbox(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_MAILBOX);
}

static int check_rank(lua_State *L, int index) {
    const int rank = (int)luaL_checkinteger(L, index);
    if (rank < 0 || rank >= mg_world_size())
        bind_fail(L, MG_USAGE, "mailbox: there is no rank %d", rank);
    return rank;
}

/* ---- sending ---- */

/* The tensors of the table at `index`, in which false stands for none. Pushes memory. */
static mg_tensor **read_values(lua_State *L, int index, const form *f) {
    mg_tensor **values = lua_newuserdata(L, (size_t)(f->n_values + 1) * sizeof(mg_tensor *));
    mg_tensor **present = lua_newuserdata(L, (size_t)(f->n_values + 1) * sizeof(mg_tensor *));
    int n = 0;
    for (int i = 0; i < f->n_values; i++) {
        values[i] = NULL;
        if (lua_isnoneornil(L, index)) continue;
        lua_rawgeti(L, index, i + 1);
        if (lua_toboolean(L, -1)) {
            const mg_tensor *like = f->like[i]->value;
            values[i] = present[n] = bind_to_tensor(L, -1);
            if (!present[n] || present[n]->dtype != like->dtype ||
                mg_shape_count(&present[n]->shape) != mg_shape_count(&like->shape))
                bind_fail(L, MG_USAGE, "mailbox: value %d is not a tensor like %s", i + 1,
                          f->like[i]->name);
            n++;
        }
        lua_pop(L, 1);
    }
    bind_eval(L, present, n);
    return values;
}

/* mailbox:send(to, numbers, form, values): begins to send. values: an array of tensors in the order
 * of the form, with false for those that the receiver does not look at; nil: none. */
static int mailbox_send(lua_State *L) {
    const mailbox *m = check_mailbox(L);
    const int to = check_rank(L, 2);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 5);
    const form f = read_form(L, (int)lua_objlen(L, 3), 4);
    mg_tensor **values = read_values(L, 5, &f);
    char *data = mg_mailbox_write(m->box, to, f.at[f.n_values]);
    if (!data) bind_raise(L);
    for (int i = 0; i < f.n_numbers; i++) {
        lua_rawgeti(L, 3, i + 1);
        ((double *)(void *)data)[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    for (int i = 0; i < f.n_values; i++)
        if (values[i]) bind_check(L, mg_tensor_read(values[i], data + f.at[i]));
    bind_check(L, mg_mailbox_send(m->box, to));
    return 0;
}

/* mailbox:settle(): returns when all messages of this rank have gone. */
static int mailbox_settle(lua_State *L) {
    bind_check(L, mg_mailbox_settle(check_mailbox(L)->box));
    return 0;
}

/* ---- receiving ---- */

/* mailbox:expect(from, n, form): begins to receive a message of n numbers and the values. */
static int mailbox_expect(lua_State *L) {
    const mailbox *m = check_mailbox(L);
    const int from = check_rank(L, 2);
    const form f = read_form(L, (int)luaL_checkinteger(L, 3), 4);
    bind_check(L, mg_mailbox_expect(m->box, from, f.at[f.n_values]));
    return 0;
}

/* mailbox:next(n) -> the rank whose message has come next, and an array of its n numbers. Waits. */
static int mailbox_next(lua_State *L) {
    const mailbox *m = check_mailbox(L);
    const int n = (int)luaL_checkinteger(L, 2);
    int from;
    size_t bytes;
    bind_check(L, mg_mailbox_next(m->box, &from));
    const double *numbers = (const void *)mg_mailbox_read(m->box, from, &bytes);
    if (n < 0 || (size_t)n * sizeof *numbers > bytes)
        return bind_fail(L, MG_USAGE, "mailbox: the message has fewer than %d numbers", n);
    lua_pushinteger(L, from);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushnumber(L, numbers[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

/* The sum, in the order of the ranks, of value i in the last messages of the ranks in the table on
 * top of the stack. */
static mg_tensor *sum_value(lua_State *L, const mailbox *m, const form *f, int i, char *sum) {
    const mg_tensor *like = f->like[i]->value;
    for (int k = 1; k <= (int)lua_objlen(L, -1); k++) {
        lua_rawgeti(L, -1, k);
        const int rank = check_rank(L, -1);
        lua_pop(L, 1);
        if (mg_mailbox_add(m->box, rank, f->at[i], mg_shape_count(&like->shape),
                           (mg_dtype)like->dtype, k == 1, sum) != MG_OK)
            return NULL;
    }
    return mg_tensor_from_host(sum, (mg_dtype)like->dtype, &like->shape, like->device);
}

/* mailbox:sums(n, form, ranks) -> for each value the sum of it in the last messages of the ranks in
 * ranks[i], on the device of its variable; false where that array is empty. n: as in expect. */
static int mailbox_sums(lua_State *L) {
    const mailbox *m = check_mailbox(L);
    luaL_checktype(L, 4, LUA_TTABLE);
    const form f = read_form(L, (int)luaL_checkinteger(L, 2), 3);
    size_t most = 0;
    for (int i = 0; i < f.n_values; i++) {
        const size_t bytes = mg_tensor_bytes(f.like[i]->value);
        if (bytes > most) most = bytes;
    }
    bind_account(L, f.at[f.n_values]);
    char *sum = lua_newuserdata(L, most + 1);
    lua_createtable(L, f.n_values, 0);
    const int results = lua_gettop(L);
    for (int i = 0; i < f.n_values; i++) {
        mg_tensor **place = NULL;
        lua_rawgeti(L, 4, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        if (lua_objlen(L, -1) == 0) {
            lua_pushboolean(L, 0);
        } else {
            place = bind_new_tensor(L);
            lua_insert(L, -2);
            bind_fill(L, place, sum_value(L, m, &f, i, sum));
            lua_pop(L, 1);
        }
        lua_rawseti(L, results, i + 1);
        lua_settop(L, results);
    }
    return 1;
}

/* ---- making one ---- */

static int mailbox_gc(lua_State *L) {
    mailbox *m = check_mailbox(L);
    mg_mailbox_free(m->box);
    m->box = NULL;
    return 0;
}

static const luaL_Reg methods[] = {{"send", mailbox_send},
                                   {"settle", mailbox_settle},
                                   {"expect", mailbox_expect},
                                   {"next", mailbox_next},
                                   {"sums", mailbox_sums},
                                   {"close", mailbox_gc},
                                   {NULL, NULL}};

/* mailbox() -> a mailbox. All ranks make the same ones in the same order. After close(), or when it
 * is collected, messages that are on their way are given up. */
static int core_mailbox(lua_State *L) {
    mailbox *m = lua_newuserdata(L, sizeof *m);
    m->box = NULL;
    if (luaL_newmetatable(L, BIND_MAILBOX)) {
        lua_pushcfunction(L, mailbox_gc), lua_setfield(L, -2, "__gc");
        lua_newtable(L);
        bind_register(L, methods);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
    m->box = mg_mailbox_new();
    if (!m->box) bind_raise(L);
    return 1;
}

const luaL_Reg mg_bind_world_messages[] = {{"mailbox", core_mailbox}, {NULL, NULL}};
