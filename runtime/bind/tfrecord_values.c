/* Values of Lua (numbers, tables, tensors, strings) as features of records. Numbers that the
 * field's dtype cannot hold are errors, not rounded. */
#include "bind/tfrecord.h"
#include "core/alloc.h"
#include "data/image.h"
#include "device/device.h"
#include "graph/graph.h"
#include <stdio.h>
#include <string.h>

/* Room for the beginning of messages: "write_tfrecord: row 3: feature \"label\"". */
enum { WHO = 512 };
#define TWO_63 9223372036854775808.0

/* Numbers in host memory, in a block on the Lua stack. */
typedef struct numbers {
    mg_dtype dtype;
    mg_shape shape;
    const void *data;
} numbers;

/* ---- numbers ---- */

/* Reads the tensor, a table or a variable made one, at index; pushes the block. */
static numbers read_tensor(lua_State *L, mg_tensor *t) {
    bind_eval(L, &t, 1);
    void *block = lua_newuserdata(L, mg_tensor_bytes(t) + 1);
    bind_check(L, mg_tensor_read(t, block));
    return (numbers){(mg_dtype)t->dtype, t->shape, block};
}

/* Pushes one block. */
static numbers take_numbers(lua_State *L, int index, const char *who) {
    if (lua_type(L, index) == LUA_TNUMBER || lua_isboolean(L, index)) {
        const bool number = lua_type(L, index) == LUA_TNUMBER;
        double *v = lua_newuserdata(L, sizeof *v);
        *v = number ? lua_tonumber(L, index) : lua_toboolean(L, index);
        return (numbers){MG_F64, MG_SHAPE(), v};
    }
    if (lua_istable(L, index)) {
        mg_tensor *t = bind_from_table(L, index, MG_F64, mg_device_find("ref:0"), who);
        const numbers given = read_tensor(L, t);
        lua_remove(L, -2);
        return given;
    }
    if (!lua_isuserdata(L, index))
        bind_fail(L, MG_USAGE, "%s: expected numbers, got a %s", who, luaL_typename(L, index));
    return read_tensor(L, bind_take_tensor(L, index, NULL, who));
}

static void range_of(mg_dtype dtype, int64_t *least, int64_t *most) {
    *least = dtype == MG_I64 ? INT64_MIN : dtype == MG_I32 ? INT32_MIN : 0;
    *most = dtype == MG_I64   ? INT64_MAX
            : dtype == MG_I32 ? INT32_MAX
            : dtype == MG_U8  ? UINT8_MAX
                              : 1;
}

/* Element i of the numbers (v: the numbers as doubles) as an integer that `range` can hold. */
static int64_t whole(lua_State *L, const numbers *given, const double *v, size_t i, mg_dtype range,
                     const char *who) {
    int64_t least, most;
    range_of(range, &least, &most);
    const bool exact = given->dtype == MG_I64;
    const bool is_whole = v[i] >= -TWO_63 && v[i] < TWO_63 && v[i] == (double)(int64_t)v[i];
    const int64_t value = exact ? ((const int64_t *)given->data)[i] : is_whole ? (int64_t)v[i] : 0;
    if ((!exact && !is_whole) || value < least || value > most)
        bind_fail(L, MG_USAGE, "%s: element %d is %.17g, which %s cannot hold", who, (int)i + 1,
                  v[i], mg_dtype_name(range));
    return value;
}

static void store_whole(void *dst, mg_dtype dtype, size_t i, int64_t value) {
    if (dtype == MG_I64)
        ((int64_t *)dst)[i] = value;
    else if (dtype == MG_I32)
        ((int32_t *)dst)[i] = (int32_t)value;
    else
        ((uint8_t *)dst)[i] = (uint8_t)value;
}

/* The numbers as elements of `dtype`, each of which `range` can hold. Pushes a block. */
static const void *convert(lua_State *L, const numbers *given, mg_dtype dtype, mg_dtype range,
                           const char *who) {
    const size_t n = (size_t)mg_shape_count(&given->shape);
    void *dst = lua_newuserdata(L, n * mg_dtype_size(dtype) + 1);
    if (given->dtype == dtype && dtype == range) {
        memcpy(dst, given->data, n * mg_dtype_size(dtype));
        return dst;
    }
    double *v = lua_newuserdata(L, (n + 1) * sizeof *v);
    mg_to_double(v, given->data, given->dtype, n);
    if (mg_dtype_is_float(range)) {
        mg_from_double(dst, v, dtype, n);
    } else {
        for (size_t i = 0; i < n; i++)
            store_whole(dst, dtype, i, whole(L, given, v, i, range, who));
    }
    lua_pop(L, 1);
    return dst;
}

/* ---- shapes ---- */

static bool varies(const mg_record_field *f) {
    return mg_field_varies(&(mg_field){.shape = f->shape});
}

/* {} stands for no values, whatever the other sizes. */
static void check_shape(lua_State *L, const mg_record_field *f, const numbers *given,
                        const char *who) {
    if (mg_record_shape_fits(f, &given->shape)) return;
    if (varies(f) && mg_shape_count(&given->shape) == 0) return;
    bind_fail(L, MG_USAGE, "%s: expected shape %s, got %s", who, MG_SHAPE_TEXT(&f->shape),
              MG_SHAPE_TEXT(&given->shape));
}

const void *bind_record_numbers(lua_State *L, int index, const mg_record_field *f,
                                const char *who) {
    char text[WHO];
    snprintf(text, sizeof text, "%s: field \"%.300s\": default", who, f->name);
    numbers given = take_numbers(L, index, text);
    const size_t n = (size_t)mg_shape_count(&f->shape), size = mg_dtype_size(f->dtype);
    if (given.shape.rank) check_shape(L, f, &given, text);
    const char *one = convert(L, &given, f->dtype, f->dtype, text);
    if (given.shape.rank == 0 && f->shape.rank) {
        char *all = lua_newuserdata(L, n * size + 1);
        for (size_t i = 0; i < n; i++) memcpy(all + i * size, one, size);
        lua_remove(L, -2);
        one = all;
    }
    lua_remove(L, -2); /* what was converted */
    return one;
}

/* ---- values ---- */

static mg_feature_value list_value(lua_State *L, int index, const mg_record_field *f,
                                   const char *who) {
    const numbers given = take_numbers(L, index, who);
    check_shape(L, f, &given, who);
    const bool floats = f->dtype == MG_F32;
    return (mg_feature_value){f->name, floats ? MG_FEATURE_FLOAT : MG_FEATURE_INT64,
                              convert(L, &given, floats ? MG_F32 : MG_I64, f->dtype, who),
                              (size_t)mg_shape_count(&given.shape), NULL};
}

static mg_feature_value string_value(lua_State *L, int index, const mg_record_field *f) {
    size_t n;
    const char *text = lua_tolstring(L, index, &n);
    return (mg_feature_value){f->name, MG_FEATURE_BYTES, text, n, NULL};
}

const mg_text *bind_record_texts(lua_State *L, int index, size_t n, const char *who) {
    if (!lua_istable(L, index))
        bind_fail(L, MG_USAGE, "%s: expected an array of %d strings, got a %s", who, (int)n,
                  luaL_typename(L, index));
    if (lua_objlen(L, index) != n)
        bind_fail(L, MG_USAGE, "%s: expected an array of %d strings, got one of %d", who, (int)n,
                  (int)lua_objlen(L, index));
    mg_text *texts = lua_newuserdata(L, n * sizeof *texts);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            bind_fail(L, MG_USAGE, "%s: string %d is a %s", who, (int)i + 1, luaL_typename(L, -1));
        texts[i].bytes = lua_tolstring(L, -1, &texts[i].n);
        lua_pop(L, 1);
    }
    return texts;
}

static mg_feature_value texts_value(lua_State *L, int index, const mg_record_field *f,
                                    const char *who) {
    const size_t n = (size_t)f->shape.dim[0];
    return (mg_feature_value){.name = f->name,
                              .kind = MG_FEATURE_BYTES,
                              .strings = bind_record_texts(L, index, n, who),
                              .count = n};
}

/* A string must hold the elements in their memory representation. */
static mg_feature_value raw_value(lua_State *L, int index, const mg_record_field *f,
                                  const char *who) {
    const size_t element = mg_dtype_size(f->dtype);
    if (lua_type(L, index) == LUA_TSTRING) {
        const mg_feature_value v = string_value(L, index, f);
        const size_t n = (size_t)mg_shape_count(&f->shape) * element;
        if (varies(f) ? v.count % element != 0 : v.count != n)
            bind_fail(L, MG_USAGE, "%s: a string of %d bytes does not have shape %s of %s", who,
                      (int)v.count, MG_SHAPE_TEXT(&f->shape), mg_dtype_name(f->dtype));
        return v;
    }
    const numbers given = take_numbers(L, index, who);
    check_shape(L, f, &given, who);
    return (mg_feature_value){f->name, MG_FEATURE_BYTES,
                              convert(L, &given, f->dtype, f->dtype, who),
                              (size_t)mg_shape_count(&given.shape) * element, NULL};
}

static void free_block(void *block) {
    mg_free(block);
}

static bool is_image_file(const mg_feature_value *v) {
    const uint8_t *p = v->data;
    return v->count >= 8 &&
           (memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0 || (p[0] == 0xff && p[1] == 0xd8));
}

/* {height, width} is the same as {height, width, 1}. */
static void match_rank(mg_shape *given, const mg_shape *wanted) {
    if (given->rank == 2 && wanted->rank == 3) {
        given->dim[given->rank++] = 1;
    } else if (given->rank == 3 && wanted->rank == 2 && given->dim[2] == 1) {
        given->dim[--given->rank] = 0;
    }
}

/* A string is an encoded image; a uint8 tensor is encoded. */
static mg_feature_value image_value(lua_State *L, int index, const mg_record_field *f,
                                    const char *who) {
    if (lua_type(L, index) == LUA_TSTRING) {
        const mg_feature_value v = string_value(L, index, f);
        if (!is_image_file(&v))
            bind_fail(L, MG_USAGE, "%s: the string is not a PNG or JPEG file", who);
        return v;
    }
    numbers given = take_numbers(L, index, who);
    mg_shape *s = &given.shape;
    const int channels = s->rank == 3 && s->dim[2] <= 4 ? (int)s->dim[2] : s->rank == 2;
    const bool sized = s->rank >= 2 && s->dim[0] > 0 && s->dim[0] <= MG_IMAGE_SIDE &&
                       s->dim[1] > 0 && s->dim[1] <= MG_IMAGE_SIDE;
    if (given.dtype != MG_U8 || !sized || !(channels == 1 || channels == 3 || channels == 4))
        bind_fail(
            L, MG_USAGE,
            "%s: an image is a uint8 tensor {height, width, 1, 3 or 4} or {height, width}, or "
            "the bytes of a PNG or JPEG file; got %s of shape %s",
            who, mg_dtype_name(given.dtype), MG_SHAPE_TEXT(s));
    const mg_image image = {(int)s->dim[0], (int)s->dim[1], channels,
                            (uint8_t *)(uintptr_t)given.data, false};
    match_rank(s, &f->shape);
    check_shape(L, f, &given, who);
    if (f->quality && channels == 4)
        bind_fail(L, MG_USAGE, "%s: a JPEG image has no alpha: give 3 channels, or write png", who);
    mg_image_file file;
    bind_owner *o = bind_new_owner(L, free_block);
    const mg_status status = f->quality ? mg_image_encode_jpeg(&image, f->quality, &file)
                                        : mg_image_encode_png(&image, &file);
    if (status != MG_OK) {
        mg_error_prefix(who);
        bind_raise(L);
    }
    o->held = file.bytes;
    return (mg_feature_value){f->name, MG_FEATURE_BYTES, file.bytes, file.n, NULL};
}

mg_feature_value bind_record_value(lua_State *L, int index, const mg_record_field *f, int64_t row) {
    char who[WHO];
    snprintf(who, sizeof who, "write_tfrecord: row %lld: feature \"%.300s\"", (long long)row,
             f->name);
    if (lua_isnil(L, index))
        bind_fail(L, MG_USAGE, "%s: there is no value (give the field a `default` if that may be)",
                  who);
    if (f->form == MG_RECORD_LIST) return list_value(L, index, f, who);
    if (f->form == MG_RECORD_RAW) return raw_value(L, index, f, who);
    if (f->form == MG_RECORD_IMAGE) return image_value(L, index, f, who);
    if (f->shape.rank) return texts_value(L, index, f, who);
    if (lua_type(L, index) != LUA_TSTRING)
        bind_fail(L, MG_USAGE, "%s: expected a string, got a %s", who, luaL_typename(L, index));
    return string_value(L, index, f);
}
