/* How a signature is written. Every value begins with a tag byte and has a known end, so that
 * different arguments never give the same bytes:
 *
 *     0 nil, T F booleans, n number, s string (length first), t tensor, v variable, { } table,
 *     u upvalue
 */
#include "bind/jit.h"
#include "core/fnv.h"
#include "core/precision.h"
#include "device/device.h"
#include "world/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends n bytes; raises if the signature gets longer than BIND_MAX_KEY. */
static void put_bytes(bind_signature *s, const void *data, size_t n) {
    if (s->n + n > BIND_MAX_KEY)
        bind_fail(s->L, MG_USAGE,
                  "mgpu.jit: the arguments are too many or too long: put tensors, not "
                  "long strings or tables of numbers, into arguments");
    memcpy(s->key + s->n, data, n);
    s->n += n;
}

/* The tag byte that begins every value. */
static void put_tag(bind_signature *s, char tag) {
    put_bytes(s, &tag, 1);
}

static void put_value(bind_signature *s, int index, int argument);

/* Adds dtype, rank, device and sizes of a tensor argument, whose values may differ from call to
 * call.
 *
 * The tensor itself joins the list of those that the plan is run with. */
static void put_tensor(bind_signature *s, mg_tensor *t) {
    if (s->n_tensors == BIND_MAX_TENSORS)
        bind_fail(s->L, MG_USAGE, "mgpu.jit: more than %d tensor arguments", BIND_MAX_TENSORS);
    s->tensors[s->n_tensors++] = t;
    const char head[3] = {BIND_TENSOR_TAG, (char)t->dtype, (char)t->shape.rank};
    put_bytes(s, head, sizeof head); /* the rank tells how many sizes follow */
    put_bytes(s, &t->device, sizeof t->device);
    put_bytes(s, t->shape.dim, (size_t)t->shape.rank * sizeof t->shape.dim[0]);
}

int bind_compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Raises for a number key outside 1..n: the array part ends at the first hole, and entries after it
 * would be lost. */
static void check_position(bind_signature *s, double key, int n, int argument) {
    if (key >= 1 && key <= n && key == (int)key) return;
    bind_fail(s->L, MG_USAGE,
              "mgpu.jit: argument %d: the key %g is not a position in an array without holes; "
              "give other fields names",
              argument, key);
}

/* The array part in order, then the named fields sorted by name, because the fields of a table have
 * no order. */
static void put_table(bind_signature *s, int index, int argument) {
    lua_State *L = s->L;
    const char *names[64] = {NULL};
    int n_names = 0;
    const int n = (int)lua_objlen(L, index);
    luaL_checkstack(L, 8, "jit");
    if (s->depth++ == BIND_MAX_DEPTH)
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: argument %d: tables nest deeper than %d: does one contain itself?",
                  argument, BIND_MAX_DEPTH);
    put_tag(s, '{');
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        put_value(s, lua_gettop(L), argument);
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TNUMBER) check_position(s, lua_tonumber(L, -2), n, argument);
        if (lua_type(L, -2) != LUA_TSTRING) continue;
        if (n_names == 64)
            bind_fail(L, MG_USAGE, "mgpu.jit: argument %d has more than 64 fields", argument);
        names[n_names++] = lua_tostring(L, -2);
    }
    qsort(names, (size_t)n_names, sizeof *names, bind_compare_names);
    for (int i = 0; i < n_names; i++) {
        put_bytes(s, names[i], strlen(names[i]) + 1);
        lua_getfield(L, index, names[i]);
        put_value(s, lua_gettop(L), argument);
        lua_pop(L, 1);
    }
    put_tag(s, '}');
    s->depth--;
}

/* Appends the value at index; `argument` is its number, for messages. */
static void put_value(bind_signature *s, int index, int argument) {
    lua_State *L = s->L;
    mg_tensor *t;
    mg_variable *v;
    switch (lua_type(L, index)) {
    case LUA_TNIL: put_tag(s, '0'); return;
    case LUA_TBOOLEAN: put_tag(s, lua_toboolean(L, index) ? 'T' : 'F'); return;
    case LUA_TNUMBER: {
        const double number = lua_tonumber(L, index);
        put_tag(s, 'n');
        put_bytes(s, &number, sizeof number);
        return;
    }
    case LUA_TSTRING: {
        size_t n;
        const char *text = lua_tolstring(L, index, &n);
        put_tag(s, 's');
        put_bytes(s, &n, sizeof n);
        put_bytes(s, text, n);
        return;
    }
    case LUA_TTABLE: put_table(s, index, argument); return;
    default: break;
    }
    if ((t = bind_to_tensor(L, index)) != NULL) {
        put_tensor(s, t);
    } else if ((v = bind_to_variable(L, index)) != NULL) {
        put_tag(s, 'v');
        put_bytes(s, &v, sizeof v);
    } else {
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: argument %d is a %s; arguments are tensors, variables, numbers, "
                  "strings, booleans and tables of these",
                  argument, luaL_typename(L, index));
    }
}

/* Labels the bytes since the label before. Beyond BIND_MAX_LABELS the warning is less precise. */
static void end_label(bind_signature *s, const char *kind, const char *name, int number) {
    if (s->n_labels == BIND_MAX_LABELS) return;
    s->labels[s->n_labels++] =
        (bind_label){.end = s->n, .kind = kind, .name = name, .number = number};
}

/* The bar at the end separates arguments from upvalues. */
void bind_sign_arguments(bind_signature *s, int first, int last) {
    for (int i = first; i <= last; i++) {
        put_value(s, i, i - first + 1);
        end_label(s, "argument", NULL, i - first + 1);
    }
    put_tag(s, '|');
}

/* ---- settings ---- */

/* The set of frozen layers and variables as a hash: the exclusive or of a hash of the address of
 * each object whose `trainable` differs from its initial value. Changing it back removes the
 * object's hash, so that earlier plans are found again. */
static _Thread_local uint64_t frozen_pattern;

/* By exclusive or, a second change undoes the first. */
void bind_turn_trainable(const void *object) {
    uint64_t h = (uint64_t)(uintptr_t)object; /* splitmix64's finalizer */
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    frozen_pattern ^= h ^ h >> 31;
}

uint64_t bind_trainable_pattern(void) {
    return frozen_pattern;
}

/* Two labels, so that the warning can distinguish frozen layers from other settings. */
void bind_sign_settings(bind_signature *s) {
    const mg_device *device = mg_device_default();
    /* each changes which kernels a plan is made of */
    const char bits[] = {mg_precision_fast(), mg_deterministic()};
    put_bytes(s, &device, sizeof(void *));
    put_bytes(s, bits, sizeof bits);
    end_label(s, "the default device, precision or determinism", NULL, 0);
    put_bytes(s, &frozen_pattern, sizeof frozen_pattern);
    end_label(s, "what is trainable", NULL, 0);
    const char joint = mg_world_is_joint();
    put_bytes(s, &joint, sizeof joint);
    end_label(s, "whether one rank of the world computes alone", NULL, 0);
}

/* ---- upvalues ---- */

/* Adds the upvalue at index if it can be signed; false otherwise. A tensor that an earlier trace
 * left in an upvalue is a dead placeholder, and it is skipped because nothing depends on it. */
static bool put_upvalue(bind_signature *s, int index) {
    switch (lua_type(s->L, index)) {
    case LUA_TNUMBER:
    case LUA_TSTRING:
    case LUA_TBOOLEAN: put_value(s, index, 0); return true;
    case LUA_TUSERDATA: break;
    default: return false;
    }
    const void *object = lua_touserdata(s->L, index);
    const mg_tensor *t = bind_peek_tensor(s->L, index);
    if (t && t->trace) return false;
    put_tag(s, 'u');
    put_bytes(s, &object, sizeof object);
    return true;
}

/* Only one level deep: the contents of a table in an upvalue are not signed.
 *
 * Upvalues of types that cannot be signed (functions, tables, nil) add nothing. */
void bind_sign_upvalues(bind_signature *s, int fn) {
    lua_State *L = s->L;
    const char *name;
    for (int i = 1; (name = lua_getupvalue(L, fn, i)) != NULL; i++) {
        if (put_upvalue(s, lua_gettop(L))) end_label(s, "upvalue", name, 0);
        lua_pop(L, 1);
    }
}

/* Pushes all userdata upvalues: more than are signed by address, which does no harm. */
void bind_push_upvalues(lua_State *L, int fn) {
    lua_newtable(L);
    for (int i = 1; lua_getupvalue(L, fn, i) != NULL; i++) {
        if (lua_type(L, -1) == LUA_TUSERDATA)
            lua_rawseti(L, -2, i);
        else
            lua_pop(L, 1);
    }
}

/* A label without a name or number is described by its kind alone. */
void bind_label_text(char *to, size_t size, const bind_label *l) {
    if (l->name)
        snprintf(to, size, "%s \"%s\"", l->kind, l->name);
    else if (l->number)
        snprintf(to, size, "%s %d", l->kind, l->number);
    else
        snprintf(to, size, "%s", l->kind);
}

uint64_t bind_signature_hash(const bind_signature *s) {
    return mg_fnv(MG_FNV_START, s->key, s->n);
}
