/* Data sets in Lua: IDX files, drawn digits, downloads, and streams of rows.
 *
 * The data set objects themselves are written in Lua (lua/mgpu/data/), which checks the arguments
 * of users and gives these functions well-formed tables. */
#include "bind/bind.h"
#include "bind/source.h"
#include "core/rng.h"
#include "core/threads.h"
#include "data/drawings.h"
#include "data/fetch.h"
#include "data/idx.h"
#include "data/stream.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include <math.h>

#define BIND_STREAM "mgpu.stream"
/* Limits of one call; the Philox stream of core_stream_seed. */
enum { MOST_STAGES = 64, MOST_DEFAULT_THREADS = 16, SEED_STREAM = 0x64617400 };
enum { MOST_DIGITS = 1000 * 1000, PIXELS = MG_DIGIT_SIDE * MG_DIGIT_SIDE };

/* idx_load(path) -> tensor. If memory is short, collects garbage once and tries again. */
static int core_idx_load(lua_State *L) {
    const char *path = bind_path(L, 1, "idx_load");
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    mg_tensor *t = mg_idx_load(path);
    if (!t && mg_error_code() == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        t = mg_idx_load(path);
    }
    bind_fill(L, place, t);
    bind_account(L, mg_tensor_bytes(t));
    return 1;
}

/* v as an integer; raises unless it is a whole number from 0 to `most`. `what` names it in the
 * message. */
static uint64_t check_whole(lua_State *L, double v, const char *what, double most) {
    if (!(v >= 0 && v <= most && v == floor(v)))
        bind_fail(L, MG_USAGE, "digits: %s must be a whole number from 0 to %.0f, got %.14g", what,
                  most, v);
    return (uint64_t)v;
}

/* digits(n, [seed]) -> images uint8 {n, 28, 28}, labels int32 {n}. */
static int core_digits(lua_State *L) {
    const size_t n = check_whole(L, luaL_checknumber(L, 1), "the number of images", MOST_DIGITS);
    const uint64_t seed = check_whole(L, luaL_optnumber(L, 2, 0), "the seed", 0x1p53);
    const mg_shape image_shape = MG_SHAPE((int64_t)n, MG_DIGIT_SIDE, MG_DIGIT_SIDE);
    const mg_shape label_shape = MG_SHAPE((int64_t)n);
    bind_poll(L);
    mg_tensor **x = bind_new_tensor(L), **y = bind_new_tensor(L);
    uint8_t *images = lua_newuserdata(L, n * PIXELS + 1);
    int32_t *labels = lua_newuserdata(L, (n + 1) * sizeof *labels);
    bind_check(L, mg_digits_draw((int64_t)n, seed, images, labels));
    bind_fill(L, x, mg_tensor_from_host(images, MG_U8, &image_shape, NULL));
    bind_fill(L, y, mg_tensor_from_host(labels, MG_I32, &label_shape, NULL));
    lua_pop(L, 2);
    bind_account(L, n * (PIXELS + sizeof *labels));
    return 2;
}

/* fetch(url, path, [checksum], [bytes]): downloads, see data/fetch.h. */
static int core_fetch(lua_State *L) {
    const mg_download wanted = {.url = luaL_checkstring(L, 1),
                                .path = bind_path(L, 2, "fetch"),
                                .checksum = luaL_optstring(L, 3, NULL),
                                .bytes = (int64_t)luaL_optnumber(L, 4, 0)};
    bind_poll(L);
    bind_check(L, mg_fetch(&wanted));
    return 0;
}

/* post(url, body, headers): posts, see data/fetch.h. headers: an array of "Name: value". */
static int core_post(lua_State *L) {
    mg_post_request request = {.url = luaL_checkstring(L, 1)};
    request.body = luaL_checklstring(L, 2, &request.n);
    luaL_checktype(L, 3, LUA_TTABLE);
    request.n_headers = lua_objlen(L, 3);
    const char **headers = lua_newuserdata(L, (request.n_headers + 1) * sizeof *headers);
    request.headers = headers;
    for (size_t i = 0; i < request.n_headers; i++) {
        lua_rawgeti(L, 3, (int)i + 1); /* the table keeps the text */
        headers[i] = luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    bind_poll(L);
    bind_check(L, mg_post(&request));
    return 0;
}

/* check_post(): raises if there is no plug-in that posts. */
static int core_check_post(lua_State *L) {
    bind_check(L, mg_can_post());
    return 0;
}

/* fetch_verify(path, checksum) -> whether the file has the checksum, which is computed once. */
static int core_fetch_verify(lua_State *L) {
    bool right;
    bind_check(L, mg_fetch_verify(bind_path(L, 1, "fetch_verify"), luaL_checkstring(L, 2), &right));
    lua_pushboolean(L, right);
    return 1;
}

/* ---- streams ---- */

/* The userdata of a stream. */
typedef struct stream_userdata {
    mg_stream *stream;   /* owned; NULL when closed */
    mg_element *element; /* owned: being turned into Lua tables, which may raise */
} stream_userdata;

/* stream_close(stream): stops the thread and frees the stream; also __gc, and harmless when closed.
 */
static int stream_close(lua_State *L) {
    stream_userdata *box = luaL_checkudata(L, 1, BIND_STREAM);
    mg_element_free(box->element);
    mg_stream_free(box->stream);
    *box = (stream_userdata){0};
    return 0;
}

/* Pushes a closed stream, which the collector may already release. */
static stream_userdata *new_stream_userdata(lua_State *L) {
    stream_userdata *box = lua_newuserdata(L, sizeof *box);
    *box = (stream_userdata){0};
    luaL_getmetatable(L, BIND_STREAM);
    lua_setmetatable(L, -2);
    return box;
}

/* Streams are closed by the collector, if not before. */
void bind_open_data(lua_State *L) {
    luaL_newmetatable(L, BIND_STREAM);
    lua_pushcfunction(L, stream_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

/* Field `name` of the table on top of the stack as an integer of at least `least`; nil is
 * MG_ENDLESS. */
static int64_t count_field(lua_State *L, const char *name, int64_t least) {
    lua_getfield(L, -1, name);
    const double v = lua_isnil(L, -1) ? HUGE_VAL : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    return v >= 0x1p63 ? MG_ENDLESS : v >= (double)least ? (int64_t)v : least;
}

/* Reads the stage on top of the stack: {kind=, n=, seed=, drop_remainder=, index=, shift=,
 * stride=}.
 */
static mg_stage read_stage(lua_State *L) {
    static const char *const kinds[] = {
        [MG_SHUFFLE] = "shuffle", [MG_BATCH] = "batch", [MG_CYCLE] = "cycle",   [MG_TAKE] = "take",
        [MG_SKIP] = "skip",       [MG_SHARD] = "shard", [MG_WINDOW] = "window", NULL};
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_getfield(L, -1, "kind");
    mg_stage stage = {.kind = (mg_stage_kind)luaL_checkoption(L, -1, NULL, kinds)};
    lua_getfield(L, -2, "drop_remainder");
    stage.drop_remainder = lua_toboolean(L, -1);
    lua_pop(L, 2);
    const bool may_be_0 = stage.kind == MG_CYCLE || stage.kind == MG_TAKE || stage.kind == MG_SKIP;
    stage.n = count_field(L, "n", !may_be_0);
    if (stage.kind == MG_SHUFFLE) stage.seed = (uint64_t)count_field(L, "seed", 0);
    if (stage.kind == MG_SHARD) stage.index = count_field(L, "index", 0);
    if (stage.kind == MG_WINDOW) {
        stage.shift = count_field(L, "shift", 1);
        stage.stride = count_field(L, "stride", 1);
    }
    return stage;
}

/* Reads the share {first=, n=, total=, weights=} on top of the stack. weights: room for them. */
static mg_share read_share(lua_State *L, double weights[MG_MAX_SHARDS]) {
    luaL_checktype(L, -1, LUA_TTABLE);
    const int64_t first = count_field(L, "first", 0), n = count_field(L, "n", 1),
                  total = count_field(L, "total", 1);
    if (total > MG_MAX_SHARDS || n > total || first > total - n)
        bind_fail(L, MG_USAGE,
                  "a share of a batch: %lld devices from number %lld on, of %lld; at most %d are "
                  "possible",
                  (long long)n, (long long)first, (long long)total, MG_MAX_SHARDS);
    lua_getfield(L, -1, "weights");
    const bool weighted = lua_istable(L, -1);
    for (int i = 0; i < total && weighted; i++) {
        lua_rawgeti(L, -1, i + 1);
        weights[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return (mg_share){(int)first, (int)n, (int)total, weighted ? weights : NULL};
}

/* share_rows(share, rows) -> the first of the rows (from 0) of a batch that the share has, and
 * their number; see mg_share. */
static int core_share_rows(lua_State *L) {
    int64_t from, to;
    double weights[MG_MAX_SHARDS];
    lua_settop(L, 2);
    lua_insert(L, 1);
    const mg_share share = read_share(L, weights);
    mg_share_rows(&share, (int64_t)luaL_checknumber(L, 1), &from, &to);
    lua_pushnumber(L, (double)from);
    lua_pushnumber(L, (double)(to - from));
    return 2;
}

/* rows_read() -> how many rows this process has read for datasets so far. */
static int core_rows_read(lua_State *L) {
    lua_pushnumber(L, (double)mg_element_rows_read());
    return 1;
}

/* Reads the devices that will share the rows of batches, with their weights: the arrays `shards`
 * and `weights` of the table at index; there may be none. */
static void read_shards(lua_State *L, int index, mg_stream_spec *spec) {
    lua_getfield(L, index, "shards");
    lua_getfield(L, index, "weights");
    const int n = lua_istable(L, -2) ? (int)lua_objlen(L, -2) : 0;
    spec->n_shards = n <= MG_MAX_DEVICES ? n : 0;
    spec->weighted = lua_istable(L, -1);
    for (int k = 0; k < spec->n_shards; k++) {
        lua_rawgeti(L, -2, k + 1);
        spec->shard[k] = bind_device(L, luaL_checkstring(L, -1));
        lua_pop(L, 1);
        if (!spec->weighted) continue;
        lua_rawgeti(L, -1, k + 1);
        spec->weight[k] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
}

/* Reads the device for each field, from the array `devices` of the table at index, and the device
 * `host`, on which batches are put together for devices that are not host-visible. Leaves the
 * devices on the stack below the table. */
static void read_devices(lua_State *L, int index, mg_stream_spec *spec) {
    lua_getfield(L, index, "host");
    spec->host = bind_device(L, luaL_checkstring(L, -1));
    if (!mg_device_kind_is_host_visible(spec->host->api))
        bind_fail(L, MG_USAGE, "a dataset's stream: %s is not in the host's memory",
                  spec->host->name);
    lua_getfield(L, index, "devices");
    luaL_checktype(L, -1, LUA_TTABLE);
    const int n = spec->source->n_fields;
    mg_device **devices = lua_newuserdata(L, (size_t)n * sizeof(mg_device *));
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, -2, k + 1);
        devices[k] = bind_device(L, luaL_checkstring(L, -1));
        lua_pop(L, 1);
    }
    read_shards(L, index, spec);
    spec->device = devices;
    lua_insert(L, index);
    lua_settop(L, index + 1);
}

/* The default number of threads that make batches: one is enough for memory copies. Without a depth
 * there are no threads, and counting the cores, which takes a while, is skipped. */
static int default_threads(const mg_stream_spec *spec) {
    const int cores = spec->depth == 0 || spec->source->cheap ? 1 : mg_core_count();
    return cores < MOST_DEFAULT_THREADS ? cores : MOST_DEFAULT_THREADS;
}

/* stream(source, {stage, ...}, {devices=, host=, shards=, weights=, share=, pass=, element=,
 * depth=, threads=, dense=}) -> a stream.
 *
 * See mg_stream_spec for the fields. The stream retains the source. */
static int core_stream(lua_State *L) {
    mg_stream_spec spec = {.source = bind_to_source(L, 1, "stream")};
    mg_stage stages[MOST_STAGES];
    double weights[MG_MAX_SHARDS];
    for (int i = 2; i <= 3; i++) luaL_checktype(L, i, LUA_TTABLE);
    bind_poll(L);
    spec.n_stages = (int)lua_objlen(L, 2);
    if (spec.n_stages > MOST_STAGES)
        return bind_fail(L, MG_USAGE, "a dataset of %d steps in a row; at most %d are possible",
                         spec.n_stages, MOST_STAGES);
    for (int i = 0; i < spec.n_stages; i++) {
        lua_rawgeti(L, 2, i + 1);
        stages[i] = read_stage(L);
        lua_pop(L, 1);
    }
    spec.stages = stages;
    lua_settop(L, 3);
    read_devices(L, 3, &spec); /* the table stays on top, where count_field reads it */
    lua_getfield(L, -1, "share");
    if (!lua_isnil(L, -1)) spec.share = read_share(L, weights);
    lua_pop(L, 1);
    spec.pass = (uint64_t)count_field(L, "pass", 0);
    spec.element = count_field(L, "element", 0);
    spec.depth = count_field(L, "depth", 0);
    spec.dense = (int)count_field(L, "dense", 0);
    const int64_t threads = count_field(L, "threads", 1);
    spec.threads = threads == MG_ENDLESS         ? default_threads(&spec)
                   : threads < MG_STREAM_THREADS ? (int)threads
                                                 : MG_STREAM_THREADS;
    stream_userdata *box = new_stream_userdata(L);
    box->stream = mg_stream_new(&spec);
    if (!box->stream) return bind_raise(L);
    return 1;
}

/* Pushes the strings of a cell as an array. */
static void push_strings(lua_State *L, const mg_cell *cell, int n) {
    const char *at = cell->data, *end = at + mg_shape_count(&cell->shape);
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        mg_text text;
        if (!mg_texts_next(&at, end, &text))
            bind_fail(L, MG_DATA, "a dataset's stream: a cell of %d strings is damaged", n);
        lua_pushlstring(L, text.bytes, text.n);
        lua_rawseti(L, -2, i);
    }
}

/* Pushes the texts from *next on as strings, in arrays for the axes of `shape` from `axis` on. */
static void push_texts(lua_State *L, const mg_field *field, const mg_shape *shape, int axis,
                       const mg_cell **next) {
    luaL_checkstack(L, 4, "a batch of texts");
    if (axis == shape->rank) {
        const mg_cell *cell = (*next)++;
        if (field->texts)
            push_strings(L, cell, field->texts);
        else
            lua_pushlstring(L, cell->data, (size_t)mg_shape_count(&cell->shape));
        return;
    }
    lua_createtable(L, (int)shape->dim[axis], 0);
    for (int64_t i = 0; i < shape->dim[axis]; i++) {
        push_texts(L, field, shape, axis + 1, next);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

/* Pushes a value: a tensor, which shares the element's buffer, or texts. */
static void push_value(lua_State *L, const mg_field *field, const mg_field_value *v) {
    if (field->text) {
        const mg_cell *next = v->cell;
        push_texts(L, field, &v->shape, 0, &next);
        return;
    }
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_tensor_from_buffer(v->buffer, field->dtype, &v->shape));
}

/* Pushes {{value, ...}, ...}: the values of each part of the element. */
static void push_parts(lua_State *L, const mg_element *e) {
    lua_createtable(L, (int)e->n_parts, 0);
    for (int64_t part = 0; part < e->n_parts; part++) {
        lua_createtable(L, e->n_fields, 0);
        for (int k = 0; k < e->n_fields; k++) {
            push_value(L, &e->field[k], &e->value[part * e->n_fields + k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_rawseti(L, -2, (int)part + 1);
    }
}

/* stream_next(stream) -> the parts, and the sizes of the batches around them; nothing at the end. A
 * text is a string, and in a batch an array of strings.
 *
 * If memory is short, collects garbage once and tries again. An element that remains after an error
 * is freed by the next call. */
static int core_stream_next(lua_State *L) {
    stream_userdata *box = luaL_checkudata(L, 1, BIND_STREAM);
    bind_poll(L);
    if (!box->stream) return 0;
    if (mg_trace_current())
        return bind_fail(L, MG_USAGE,
                         "a dataset's iterator: not available inside mgpu.jit: iterate outside and "
                         "give the function the batch");
    mg_element_free(box->element); /* left by an error */
    box->element = NULL;
    mg_status status = mg_stream_next(box->stream, &box->element);
    if (status == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_stream_next(box->stream, &box->element);
    }
    bind_check(L, status);
    if (!box->element) return 0;
    bind_account(L, box->element->bytes);
    push_parts(L, box->element);
    const mg_shape *outer = &box->element->outer;
    lua_createtable(L, outer->rank, 0);
    for (int i = 0; i < outer->rank; i++) {
        lua_pushnumber(L, (double)outer->dim[i]);
        lua_rawseti(L, -2, i + 1);
    }
    mg_element_free(box->element);
    box->element = NULL;
    return 2;
}

/* stream_rows(stream, part, parts) -> the origin of the rows of this part (from 1) of the last
 * element, as text; see mg_stream_describe. */
static int core_stream_rows(lua_State *L) {
    const stream_userdata *box = luaL_checkudata(L, 1, BIND_STREAM);
    const int64_t part = (int64_t)luaL_checknumber(L, 2), parts = (int64_t)luaL_checknumber(L, 3);
    char text[1024] = "";
    if (box->stream && part >= 1 && part <= parts)
        mg_stream_describe(box->stream, part - 1, parts, text, sizeof text);
    lua_pushstring(L, text);
    return 1;
}

/* stream_seed() -> a seed for a shuffle without one: 53 bits, from the process's random state,
 * which advances by one draw. */
static int core_stream_seed(lua_State *L) {
    uint32_t words[4];
    mg_philox(words, 0, mg_rng_take(1), mg_rng_get().seed, SEED_STREAM);
    lua_pushnumber(L, (double)(((uint64_t)words[0] << 32 | words[1]) >> 11));
    return 1;
}

const luaL_Reg mg_bind_data[] = {{"idx_load", core_idx_load},
                                 {"digits", core_digits},
                                 {"fetch", core_fetch},
                                 {"fetch_verify", core_fetch_verify},
                                 {"post", core_post},
                                 {"check_post", core_check_post},
                                 {"stream", core_stream},
                                 {"stream_next", core_stream_next},
                                 {"stream_rows", core_stream_rows},
                                 {"stream_close", stream_close},
                                 {"stream_seed", core_stream_seed},
                                 {"share_rows", core_share_rows},
                                 {"rows_read", core_rows_read},
                                 {NULL, NULL}};
