/* Signatures: see signature.h. */
#include "bind/signature.h"
#include "core/precision.h"
#include "device/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(bind_signature *s, const void *data, size_t n) {
    if (s->n + n > BIND_MAX_KEY)
        bind_fail(s->L, MG_USAGE,
                  "mgpu.jit: the arguments are too many or too long: put tensors, not "
                  "long strings or tables of numbers, into arguments");
    memcpy(s->key + s->n, data, n);
    s->n += n;
}

static void put_tag(bind_signature *s, char tag) {
    put(s, &tag, 1);
}

static void put_value(bind_signature *s, int index, const char *what);

static void put_tensor(bind_signature *s, mg_tensor *t) {
    if (s->n_tensors == BIND_MAX_TENSORS)
        bind_fail(s->L, MG_USAGE, "mgpu.jit: more than %d tensor arguments", BIND_MAX_TENSORS);
    s->tensors[s->n_tensors++] = t;
    const char head[3] = {'t', (char)t->dtype, (char)t->shape.rank};
    put(s, head, sizeof head);
    put(s, &t->place.device, sizeof t->place.device);
    put(s, t->shape.dim, (size_t)t->shape.rank * sizeof t->shape.dim[0]);
}

int bind_compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The array part in order, then the named fields sorted: tables have no order of their own. */
static void put_table(bind_signature *s, int index, const char *what) {
    lua_State *L = s->L;
    const char *names[64] = {NULL};
    int n_names = 0;
    const int n = (int)lua_objlen(L, index);
    luaL_checkstack(L, 8, "jit");
    put_tag(s, '{');
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        put_value(s, lua_gettop(L), what);
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) continue;
        if (n_names == 64) bind_fail(L, MG_USAGE, "mgpu.jit: %s has more than 64 fields", what);
        names[n_names++] = lua_tostring(L, -2);
    }
    qsort(names, (size_t)n_names, sizeof *names, bind_compare_names);
    for (int i = 0; i < n_names; i++) {
        put(s, names[i], strlen(names[i]) + 1);
        lua_getfield(L, index, names[i]);
        put_value(s, lua_gettop(L), what);
        lua_pop(L, 1);
    }
    put_tag(s, '}');
}

static void put_value(bind_signature *s, int index, const char *what) {
    lua_State *L = s->L;
    mg_tensor *t;
    mg_variable *v;
    switch (lua_type(L, index)) {
    case LUA_TNIL: put_tag(s, '0'); return;
    case LUA_TBOOLEAN: put_tag(s, lua_toboolean(L, index) ? 'T' : 'F'); return;
    case LUA_TNUMBER: {
        const double number = lua_tonumber(L, index);
        put_tag(s, 'n');
        put(s, &number, sizeof number);
        return;
    }
    case LUA_TSTRING: {
        size_t n;
        const char *text = lua_tolstring(L, index, &n);
        put_tag(s, 's');
        put(s, &n, sizeof n);
        put(s, text, n);
        return;
    }
    case LUA_TTABLE: put_table(s, index, what); return;
    default: break;
    }
    if ((t = bind_to_tensor(L, index)) != NULL) {
        put_tensor(s, t);
    } else if ((v = bind_to_variable(L, index)) != NULL) {
        put_tag(s, 'v');
        put(s, &v, sizeof v);
    } else {
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: %s is a %s; arguments are tensors, variables, numbers, "
                  "strings, booleans and tables of these",
                  what, luaL_typename(L, index));
    }
}

static void end_label(bind_signature *s, const char *name) {
    if (s->n_labels == BIND_MAX_LABELS) return;
    snprintf(s->labels[s->n_labels].name, sizeof s->labels[0].name, "%s", name);
    s->labels[s->n_labels++].end = s->n;
}

void bind_sign_arguments(bind_signature *s, int first, int last) {
    char what[32];
    for (int i = first; i <= last; i++) {
        snprintf(what, sizeof what, "argument %d", i - first + 1);
        put_value(s, i, what);
        end_label(s, what);
    }
    put_tag(s, '|');
}

/* Numbers, strings and booleans that the function has from outside, one level deep. */
void bind_sign_settings(bind_signature *s) {
    const mg_device *device = mg_device_default();
    const char bits[] = {mg_precision_fast(), mg_deterministic()};
    put(s, &device, sizeof(void *));
    put(s, bits, sizeof bits);
    end_label(s, "the default device, precision or determinism");
}

void bind_sign_upvalues(bind_signature *s, int fn) {
    lua_State *L = s->L;
    const char *name;
    for (int i = 1; (name = lua_getupvalue(L, fn, i)) != NULL; i++) {
        const int type = lua_type(L, -1);
        if (type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TBOOLEAN) {
            char what[48];
            put_value(s, lua_gettop(L), "an upvalue");
            snprintf(what, sizeof what, "upvalue \"%s\"", name);
            end_label(s, what);
        }
        lua_pop(L, 1);
    }
}

uint64_t bind_signature_hash(const bind_signature *s) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s->n; i++) h = (h ^ (unsigned char)s->key[i]) * 0x100000001b3u;
    return h;
}
