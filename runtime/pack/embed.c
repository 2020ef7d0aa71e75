/* A model as a library: see embed.h. The library has a state of LuaJIT, which loads the model from
 * the archive and compiles a step for each number of rows (lua/mgpu/pack/embedded.lua). */
#include "bind/bind.h"
#include "core/dtype.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "pack/archive.h"
#include "pack/embed.h"
#include "pack/pack.h"

#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by lock. */
static lua_State *state; /* with the function that predicts at index 1; NULL: not open */
static bool has_archive;

static __thread char message[1024];

const char *mgpu_model_error(void) {
    return message;
}

static int fail(const mgpu_model *model, mg_status status, const char *why) {
    snprintf(message, sizeof message, "%s: %s", model->name, why);
    return status == MG_OK ? MG_INTERNAL : (int)status;
}

/* ---- opening ---- */

/* Where Lua finds mgpu: in the archive. */
static void set_up_packages(lua_State *L) {
    lua_pushliteral(L, MG_PACK_ROOT);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_mgpu_core);
    lua_setfield(L, -2, "mgpu.core");
    lua_pop(L, 2);
    mg_pack_open_files(L);
}

/* The name of the model's file in the archive. */
static const char *model_name(void) {
    mg_manifest_line line;
    for (size_t i = 0; mg_archive_manifest(i, &line); i++)
        if (strcmp(line.kind, "model") == 0) return line.name;
    return "";
}

/* Leaves the function that predicts on the stack. */
static int open_model(lua_State *L) {
    lua_settop(L, 0);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    bind_replace_pairs(L);
    set_up_packages(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "mgpu.pack.embedded");
    lua_call(L, 1, 1);
    lua_pushstring(L, model_name());
    lua_call(L, 1, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.predict");
    return 0;
}

/* The text of the error on top of the stack. */
static const char *error_text(lua_State *L) {
    const char *text = lua_tostring(L, -1);
    return text ? text : "an error without a message";
}

static int open_state(const mgpu_model *model) {
    if (state) return MG_OK;
    if (!has_archive) {
        mg_pack_use_plugins();
        const mg_status status = mg_archive_open(model->archive, *model->size, model->name, NULL);
        if (status != MG_OK) return fail(model, status, mg_error_message());
        has_archive = true;
    }
    lua_State *L = luaL_newstate();
    if (!L) return fail(model, MG_OOM, "not enough memory for a Lua state");
    mg_error_clear();
    if (lua_cpcall(L, open_model, NULL) != 0) {
        const int code = fail(model, mg_error_code(), error_text(L));
        lua_close(L);
        return code;
    }
    state = L;
    return MG_OK;
}

int mgpu_model_open(const mgpu_model *model) {
    pthread_mutex_lock(&lock);
    const int code = open_state(model);
    pthread_mutex_unlock(&lock);
    return code;
}

void mgpu_model_close(void) {
    pthread_mutex_lock(&lock);
    if (state) {
        lua_close(state);
        mg_devices_close();
    }
    state = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- predicting ---- */

typedef struct call { /* the arguments of mgpu_model_predict */
    const mgpu_model *model;
    long rows;
    const void *const *in;
    void *const *out;
} call;

/* Pushes the i-th input as a tensor. */
static void push_input(lua_State *L, const call *c, int i) {
    const mgpu_model_array *a = &c->model->inputs[i];
    mg_shape shape = {.rank = a->rank + 1, .dim = {c->rows}};
    const int dtype = mg_dtype_from_name(a->dtype);
    for (int k = 0; k < a->rank; k++) shape.dim[k + 1] = a->shape[k];
    if (dtype < 0) bind_fail(L, MG_INTERNAL, "unknown dtype %s", a->dtype);
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_tensor_from_host(c->in[i], (mg_dtype)dtype, &shape, NULL));
}

/* Reads the tensor at index to the i-th output, and frees its memory. */
static void read_output(lua_State *L, const call *c, int i, int index) {
    const mgpu_model_array *a = &c->model->outputs[i];
    mg_tensor *t = bind_to_tensor(L, index);
    bool same = t && t->shape.rank == a->rank + 1 && t->shape.dim[0] == c->rows &&
                strcmp(mg_dtype_name((mg_dtype)t->dtype), a->dtype) == 0;
    for (int k = 0; same && k < a->rank; k++) same = t->shape.dim[k + 1] == a->shape[k];
    if (!same) bind_fail(L, MG_UNSUPPORTED, "output %d has another shape for %ld rows", i, c->rows);
    bind_check(L, mg_tensor_read(t, c->out[i]));
}

/* Tensors that are not used any more hold memory which the collector does not see. */
static void free_tensors(lua_State *L, int first, int last) {
    for (int i = first; i <= last; i++) {
        lua_getfield(L, i, "free");
        lua_pushvalue(L, i);
        lua_call(L, 1, 0);
    }
}

static int predict(lua_State *L) {
    const call *c = lua_touserdata(L, 1);
    const mgpu_model *m = c->model;
    luaL_checkstack(L, 2 * m->n_inputs + m->n_outputs + 4, "too many inputs");
    lua_settop(L, 0);
    for (int i = 0; i < m->n_inputs; i++) push_input(L, c, i);
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.predict");
    for (int i = 0; i < m->n_inputs; i++) lua_pushvalue(L, i + 1);
    lua_call(L, m->n_inputs, m->n_outputs);
    for (int i = 0; i < m->n_outputs; i++) read_output(L, c, i, m->n_inputs + 1 + i);
    free_tensors(L, 1, m->n_inputs + m->n_outputs);
    return 0;
}

int mgpu_model_predict(const mgpu_model *model, long rows, const void *const *in,
                       void *const *out) {
    if (rows < 1) return fail(model, MG_USAGE, "the number of rows must be at least 1");
    for (int i = 0; i < model->n_inputs; i++)
        if (!in[i]) return fail(model, MG_USAGE, "an input is NULL");
    for (int i = 0; i < model->n_outputs; i++)
        if (!out[i]) return fail(model, MG_USAGE, "an output is NULL");
    pthread_mutex_lock(&lock);
    int code = open_state(model);
    call c = {model, rows, in, out};
    mg_error_clear();
    if (code == MG_OK && lua_cpcall(state, predict, &c) != 0) {
        code = fail(model, mg_error_code(), error_text(state));
        lua_settop(state, 0);
    }
    pthread_mutex_unlock(&lock);
    return code;
}
