/* TFRecord files in Lua. lua/mgpu/data/tfrecord.lua checks the users' arguments; the checks
 * here only protect the C code. When rows are written, tfrecord_values.c turns their values into
 * features. */
#include "bind/tfrecord.h"
#include "bind/source.h"
#include "core/alloc.h"
#include <string.h>

/* ---- schemas ---- */

/* The fields of a schema, held by a bind_owner. */
static void release_fields(void *held) {
    bind_record_fields *fields = held;
    for (int k = 0; k < fields->n; k++) mg_record_field_clear(&fields->field[k]);
    mg_free(fields);
}

/* The field `name` of the table at `at` as a whole number; 0 if it is not there. */
static int whole_field(lua_State *L, int at, const char *name) {
    lua_getfield(L, at, name);
    const int value = (int)lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

static mg_shape take_shape(lua_State *L, int at, const char *who) {
    mg_shape shape = {0}, whole;
    lua_getfield(L, at, "shape");
    luaL_checktype(L, -1, LUA_TTABLE);
    const size_t rank = lua_objlen(L, -1);
    if (rank > MG_MAX_RANK)
        bind_fail(L, MG_USAGE, "%s: a shape has at most %d axes", who, MG_MAX_RANK);
    shape.rank = (int32_t)rank;
    for (int i = 0; i < shape.rank; i++) {
        lua_rawgeti(L, -1, i + 1);
        shape.dim[i] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    whole = shape;
    for (int i = 0; i < shape.rank; i++) whole.dim[i] = shape.dim[i] < 0 ? 1 : shape.dim[i];
    bind_check(L, mg_shape_check(&whole, who));
    return shape;
}

/* Reads the default from the table at `at`: a text, an array of texts, or a number for each element
 * of a cell. */
static void take_fallback(lua_State *L, int at, mg_record_field *f, const char *who) {
    size_t n;
    lua_getfield(L, at, "default");
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return;
    }
    const int value = lua_gettop(L);
    const char *bytes;
    if (f->form != MG_RECORD_TEXT) {
        n = (size_t)mg_shape_count(&f->shape) * mg_dtype_size(f->dtype);
        bytes = bind_record_numbers(L, value, f, who);
    } else if (f->shape.rank) {
        const size_t count = (size_t)f->shape.dim[0];
        const mg_text *texts = bind_record_texts(L, value, count, who);
        n = mg_texts_size(texts, count);
        char *packed = lua_newuserdata(L, n);
        mg_texts_pack(texts, count, packed);
        bytes = packed;
    } else {
        bytes = luaL_checklstring(L, value, &n);
    }
    f->fallback = mg_alloc(n);
    if (!f->fallback) bind_raise(L);
    f->fallback_bytes = n;
    if (n) memcpy(f->fallback, bytes, n);
    lua_settop(L, value - 1);
}

/* Fills in a field from the table on top of the stack. */
static void take_field(lua_State *L, mg_record_field *f, const char *who) {
    static const char *const forms[] = {"list", "raw", "text", "image", NULL};
    const int at = lua_gettop(L);
    luaL_checktype(L, at, LUA_TTABLE);
    lua_getfield(L, at, "name");
    f->name = mg_strdup(luaL_checkstring(L, -1));
    if (!f->name) bind_raise(L);
    lua_getfield(L, at, "form");
    f->form = (mg_record_form)luaL_checkoption(L, -1, NULL, forms);
    lua_getfield(L, at, "dtype");
    f->dtype = (mg_dtype)bind_dtype_option(L, -1, who);
    lua_settop(L, at);
    f->shape = take_shape(L, at, who);
    f->channels = whole_field(L, at, "channels");
    f->quality = whole_field(L, at, "quality");
    take_fallback(L, at, f, who);
}

bind_record_fields *bind_push_record_fields(lua_State *L, int index, const char *who) {
    luaL_checktype(L, index, LUA_TTABLE);
    const int n = (int)lua_objlen(L, index);
    bind_owner *owner = bind_new_owner(L, release_fields);
    bind_record_fields *fields =
        mg_alloc_zero(sizeof *fields + (size_t)n * sizeof fields->field[0]);
    if (!fields) bind_raise(L);
    owner->held = fields;
    while (fields->n < n) { /* counted first, because an error may leave the field partly filled */
        lua_rawgeti(L, index, fields->n + 1);
        take_field(L, &fields->field[fields->n++], who);
        lua_pop(L, 1);
    }
    return fields;
}

/* ---- reading ---- */

static mg_packing take_packing(lua_State *L, int index) {
    static const char *const names[] = {"auto", "none", "gzip", "zlib", NULL};
    return (mg_packing)luaL_checkoption(L, index, "auto", names);
}

/* tfrecord_source(paths, schema, packing, skip_bad) -> source, records left out, bytes left out.
 *
 * schema: {{name =, form = "list", "raw", "text" or "image", dtype =, shape =, channels =, default
 * =}, ...}; packing: "auto", "none", "gzip" or "zlib". */
static int core_tfrecord_source(lua_State *L) {
    mg_tfrecord_spec spec = {.packing = take_packing(L, 3), .skip_bad = lua_toboolean(L, 4)};
    int64_t records, bytes;
    bind_poll(L);
    lua_settop(L, 2);
    spec.paths = bind_take_texts(L, 1, "tfrecord", &spec.n_paths);
    bind_record_fields *fields = bind_push_record_fields(L, 2, "tfrecord");
    if (fields->n < 1 || fields->n > MG_SOURCE_FIELDS)
        bind_fail(L, MG_USAGE, "tfrecord: %d fields; 1 to %d are possible", fields->n,
                  MG_SOURCE_FIELDS);
    spec.field = fields->field;
    spec.n_fields = fields->n;
    mg_source **place = bind_new_source(L);
    if (!(*place = mg_tfrecord_source(&spec))) return bind_raise(L);
    mg_tfrecord_source_skipped(*place, &records, &bytes);
    lua_pushnumber(L, (double)records);
    lua_pushnumber(L, (double)bytes);
    return 3;
}

/* ---- writing ---- */

#define BIND_RECORD_WRITER "mgpu.tfrecord_writer"

/* The files that rows are written to. */
typedef struct record_writer {
    bind_record_fields *fields; /* borrowed from the environment of the userdata */
    int64_t rows;
    int n;
    mg_tfrecord_writer *shard[]; /* owned; NULL after close */
} record_writer;

static int writer_close(lua_State *L) {
    record_writer *w = luaL_checkudata(L, 1, BIND_RECORD_WRITER);
    for (int i = 0; i < w->n; i++) mg_tfrecord_writer_free(w->shard[i]);
    w->n = 0;
    return 0;
}

void bind_open_tfrecord(lua_State *L) {
    luaL_newmetatable(L, BIND_RECORD_WRITER);
    lua_pushcfunction(L, writer_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

/* Raises if something could not be written. */
static void check_written(lua_State *L, mg_status status) {
    if (status != MG_OK) mg_source_name_error("write_tfrecord");
    bind_check(L, status);
}

/* tfrecord_writer(paths, schema, packing) -> a writer of files that appear when it is committed. */
static int core_tfrecord_writer(lua_State *L) {
    const mg_packing packing = take_packing(L, 3);
    int n;
    lua_settop(L, 2);
    const char **paths = bind_take_texts(L, 1, "write_tfrecord", &n);
    bind_record_fields *fields = bind_push_record_fields(L, 2, "write_tfrecord");
    record_writer *w = lua_newuserdata(L, sizeof *w + (size_t)n * sizeof w->shard[0]);
    *w = (record_writer){.fields = fields};
    luaL_getmetatable(L, BIND_RECORD_WRITER);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0); /* keeps the fields */
    lua_pushvalue(L, -3);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    for (; w->n < n; w->n++)
        if (!(w->shard[w->n] = mg_tfrecord_writer_open(paths[w->n], packing)))
            check_written(L, mg_error_code());
    return 1;
}

/* tfrecord_write(writer, value, ...): writes a row, with a value for each field; nil leaves the
 * feature out. Rows are distributed over the files in turn. */
static int core_tfrecord_write(lua_State *L) {
    record_writer *w = luaL_checkudata(L, 1, BIND_RECORD_WRITER);
    enum { FIRST = 2 };
    if (!w->n) return bind_fail(L, MG_USAGE, "write_tfrecord: the files are closed");
    const int n_fields = w->fields->n;
    if (w->rows % 256 == 0) bind_poll(L);
    if (lua_gettop(L) - 1 > n_fields)
        return bind_fail(L, MG_USAGE,
                         "write_tfrecord: row %lld has %d values, the schema %d fields",
                         (long long)w->rows + 1, lua_gettop(L) - 1, n_fields);
    lua_settop(L, FIRST - 1 + n_fields);
    luaL_checkstack(L, 32, "write_tfrecord");
    mg_feature_value *values = lua_newuserdata(L, (size_t)(n_fields + 1) * sizeof *values);
    lua_newtable(L);
    const int kept = lua_gettop(L);
    int n = 0;
    for (int k = 0; k < n_fields; k++) {
        if (lua_isnil(L, FIRST + k) && w->fields->field[k].fallback) continue;
        values[n++] = bind_record_value(L, FIRST + k, &w->fields->field[k], w->rows + 1);
        bind_keep(L, kept);
    }
    size_t size;
    uint8_t *message = mg_example_encode(values, n, &size);
    if (!message) check_written(L, mg_error_code());
    const mg_status status = mg_tfrecord_writer_add(w->shard[w->rows % w->n], message, size);
    mg_free(message);
    check_written(L, status);
    w->rows++;
    return 0;
}

/* tfrecord_commit(writer) -> the number of rows: puts the files at their paths. */
static int core_tfrecord_commit(lua_State *L) {
    record_writer *w = luaL_checkudata(L, 1, BIND_RECORD_WRITER);
    bind_poll(L);
    for (int i = 0; i < w->n; i++) check_written(L, mg_tfrecord_writer_finish(w->shard[i]));
    for (int i = 0; i < w->n; i++) check_written(L, mg_tfrecord_writer_commit(w->shard[i]));
    writer_close(L);
    lua_pushnumber(L, (double)w->rows);
    return 1;
}

const luaL_Reg mg_bind_tfrecord[] = {
    {"tfrecord_source", core_tfrecord_source}, {"tfrecord_writer", core_tfrecord_writer},
    {"tfrecord_write", core_tfrecord_write},   {"tfrecord_commit", core_tfrecord_commit},
    {"tfrecord_close", writer_close},          {NULL, NULL}};
