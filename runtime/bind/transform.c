/* Transforms in Lua: making an augmentation from a table of checked options (lua/mgpu/data/
 * augment.lua checks them), and applying a transform to one tensor. */
#include "bind/bind.h"
#include "bind/source.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "data/transforms/augment.h"
#include "data/transforms/eigen.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { LARGEST_SIDE = 65500 }; /* MG_IMAGE_SIDE */
#define LARGEST_NUMBER 1e12    /* so that coordinates fit into 64 bits */

/* ---- fields of the table of options, at 1 ---- */

static double number(lua_State *L, const char *name, double otherwise) {
    lua_getfield(L, 1, name);
    const double v = lua_isnil(L, -1) ? otherwise : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (v != v || isinf(v)) bind_fail(L, MG_USAGE, "augment: %s must be finite, got %g", name, v);
    return v;
}

/* A whole number from 0 to `most`. */
static int64_t whole(lua_State *L, const char *name, double most) {
    const double v = number(L, name, 0);
    if (!(v >= 0 && v <= most && v == floor(v)))
        bind_fail(L, MG_USAGE, "augment: %s must be a whole number from 0 to %.0f, got %.14g", name,
                  most, v);
    return (int64_t)v;
}

static bool flag(lua_State *L, const char *name) {
    lua_getfield(L, 1, name);
    const bool v = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return v;
}

/* The index of the option's name in a list that ends with NULL; 0 if the option is missing. */
static int choice(lua_State *L, const char *name, const char *const *names) {
    lua_getfield(L, 1, name);
    const int v = luaL_checkoption(L, -1, names[0], names);
    lua_pop(L, 1);
    return v;
}

/* The numbers of an array, at most `most`, into v; RETURNS how many. */
static int numbers(lua_State *L, const char *name, double *v, int most) {
    lua_getfield(L, 1, name);
    const size_t n = lua_istable(L, -1) ? lua_objlen(L, -1) : 0;
    if (n > (size_t)most)
        bind_fail(L, MG_USAGE, "augment: %s has %d numbers, at most %d are possible", name, (int)n,
                  most);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        v[i] = luaL_checknumber(L, -1);
        if (!(fabs(v[i]) <= LARGEST_NUMBER))
            bind_fail(L, MG_USAGE, "augment: %s must be from -%g to %g, got %g", name,
                      LARGEST_NUMBER, LARGEST_NUMBER, v[i]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return (int)n;
}

/* {lo, hi}; off if the option is missing. */
static mg_range range(lua_State *L, const char *name) {
    double v[2] = {0, 0};
    const int n = numbers(L, name, v, 2);
    return (mg_range){.on = n == 2, .lo = v[0], .hi = v[1]};
}

/* {height, width}; 0 if the option is missing. */
static void size(lua_State *L, const char *name, int64_t *height, int64_t *width) {
    double v[2] = {0, 0};
    numbers(L, name, v, 2);
    for (int i = 0; i < 2; i++)
        if (!(v[i] >= 0 && v[i] <= LARGEST_SIDE))
            bind_fail(L, MG_USAGE, "augment: %s must be at most %d, got %.14g", name, LARGEST_SIDE,
                      v[i]);
    *height = (int64_t)v[0], *width = (int64_t)v[1];
}

/* NAME = {lo, hi} or a list of choices, NAME_kind, NAME_fraction. */
static mg_shift shift(lua_State *L, const char *name) {
    static const char *const kinds[] = {[MG_SHIFT_NONE] = "none",
                                        [MG_SHIFT_REAL] = "real",
                                        [MG_SHIFT_WHOLE] = "whole",
                                        [MG_SHIFT_CHOICE] = "choice",
                                        NULL};
    char field[64];
    mg_shift s = {0};
    snprintf(field, sizeof field, "%s_kind", name);
    s.kind = (mg_shift_kind)choice(L, field, kinds);
    snprintf(field, sizeof field, "%s_fraction", name);
    s.fraction = flag(L, field);
    s.n_choices = numbers(L, name, s.choice, MG_SHIFT_CHOICES);
    s.lo = s.choice[0], s.hi = s.choice[1];
    if (s.kind != MG_SHIFT_NONE && s.n_choices == 0)
        bind_fail(L, MG_USAGE, "augment: %s has no numbers", name);
    return s;
}

/* Numbers for each channel, in a userdata that stays on the stack. */
static const double *channel_numbers(lua_State *L, const char *name, int *n) {
    lua_getfield(L, 1, name);
    const size_t room = lua_istable(L, -1) ? lua_objlen(L, -1) : 0;
    lua_pop(L, 1);
    if (room == 0) return NULL;
    if (room > 1 << 20) bind_fail(L, MG_USAGE, "augment: %s has too many numbers", name);
    double *v = lua_newuserdata(L, room * sizeof *v);
    *n = numbers(L, name, v, (int)room);
    return v;
}

/* The whitening matrix, a float32 tensor {n, n}, in a userdata that stays on the stack. */
static const float *whitening(lua_State *L, int64_t *n) {
    lua_getfield(L, 1, "whitening");
    if (lua_isnil(L, -1)) return NULL;
    mg_tensor *t = bind_take_tensor(L, lua_gettop(L), NULL, "augment");
    const mg_shape *s = &t->shape;
    if (t->dtype != MG_F32 || s->rank != 2 || s->dim[0] != s->dim[1])
        bind_fail(L, MG_USAGE, "augment: the whitening must be a float32 matrix {n, n}, got %s %s",
                  mg_dtype_name((mg_dtype)t->dtype), MG_SHAPE_TEXT(s));
    bind_eval(L, &t, 1);
    float *v = lua_newuserdata(L, mg_tensor_bytes(t) + 1);
    bind_check(L, mg_tensor_read(t, v));
    *n = s->dim[0];
    return v;
}

/* ---- the table as a spec ---- */

static void read_geometry(lua_State *L, mg_augment_spec *s) {
    static const char *const interpolations[] = {
        [MG_BILINEAR] = "bilinear", [MG_NEAREST] = "nearest", NULL};
    static const char *const fills[] = {[MG_FILL_NEAREST] = "nearest",
                                        [MG_FILL_REFLECT] = "reflect",
                                        [MG_FILL_WRAP] = "wrap",
                                        [MG_FILL_CONSTANT] = "constant",
                                        NULL};
    s->interpolation = (mg_interpolation)choice(L, "interpolation", interpolations);
    s->fill = (mg_fill)choice(L, "fill_mode", fills);
    s->cval = number(L, "cval", 0);
    s->resize_kind = choice(L, "method", mg_resize_kinds);
    s->antialias = flag(L, "antialias");
    size(L, "resize", &s->resize_height, &s->resize_width);
    s->resize_fit = flag(L, "crop_to_aspect_ratio")  ? MG_CROP_TO_FIT
                    : flag(L, "pad_to_aspect_ratio") ? MG_PAD_TO_FIT
                                                     : MG_STRETCH;
    s->resize_shorter = whole(L, "resize_shorter", LARGEST_SIDE);
    size(L, "center_crop", &s->center_height, &s->center_width);
    size(L, "random_crop", &s->crop_height, &s->crop_width);
    size(L, "padding", &s->padding_rows, &s->padding_columns);
    s->padding_fill = (mg_fill)choice(L, "padding_fill", fills);
    size(L, "random_resized_crop", &s->zoomed_height, &s->zoomed_width);
    s->area = range(L, "area");
    s->aspect = range(L, "aspect");
    s->rotation = range(L, "rotation");
    s->shear = range(L, "shear");
    s->zoom_rows = range(L, "zoom_rows");
    s->zoom_columns = range(L, "zoom_columns");
    s->height_shift = shift(L, "height_shift");
    s->width_shift = shift(L, "width_shift");
    s->horizontal_flip = number(L, "horizontal_flip", 0);
    s->vertical_flip = number(L, "vertical_flip", 0);
    size(L, "cutout", &s->cutout_height, &s->cutout_width);
    s->cutout_value = number(L, "cutout_value", 0);
}

/* Leaves the memory that the spec points to on the stack. */
static void read_values(lua_State *L, mg_augment_spec *s) {
    static const char *const ways[] = {[MG_STANDARDIZE_NONE] = "none",
                                       [MG_STANDARDIZE_TF] = "tf",
                                       [MG_STANDARDIZE_CENTER] = "center",
                                       [MG_STANDARDIZE_KERAS] = "keras",
                                       NULL};
    s->channel_shift = range(L, "channel_shift");
    s->brightness_factor = range(L, "brightness_factor");
    s->brightness = range(L, "brightness");
    s->contrast = range(L, "contrast");
    s->saturation = range(L, "saturation");
    s->hue = range(L, "hue");
    s->rescale = number(L, "rescale", 0);
    s->standardize = (mg_standardize)choice(L, "standardize", ways);
    s->mean = channel_numbers(L, "mean", &s->n_mean);
    s->std = channel_numbers(L, "std", &s->n_std);
    s->whitening = whitening(L, &s->n_whitening);
}

/* augment(options) -> a transform. */
static int core_augment(lua_State *L) {
    bind_want(L, 1, LUA_TTABLE, "augment");
    mg_augment_spec spec = {.seed = (uint64_t)whole(L, "seed", 0x1p53)};
    lua_getfield(L, 1, "dtype");
    spec.dtype = bind_dtype_option(L, lua_gettop(L), "augment");
    spec.channels_first = flag(L, "channels_first");
    read_geometry(L, &spec);
    read_values(L, &spec);
    mg_transform **place = bind_new_transform(L);
    *place = mg_augment_new(&spec);
    if (!*place) return bind_raise(L);
    return 1;
}

/* ---- using it ---- */

/* A number from 0 to 2^53, rounded down. */
static int64_t count_argument(lua_State *L, int index) {
    const double v = luaL_checknumber(L, index);
    luaL_argcheck(L, v >= 0 && v <= 0x1p53, index, "expected a number from 0 to 2^53");
    return (int64_t)v;
}

/* The epoch at index, then the row. */
static mg_row_key row_key(lua_State *L, int index) {
    return (mg_row_key){(uint64_t)count_argument(L, index), count_argument(L, index + 1)};
}

static mg_augment_choice choose(lua_State *L, mg_row_key *key, int64_t *height, int64_t *width) {
    const mg_augment_spec *s = mg_augment_spec_of(bind_to_transform(L, 1, "augment_choose"));
    assert(s); /* there is no other kind of transform in Lua */
    *key = row_key(L, 2);
    *height = count_argument(L, 4), *width = count_argument(L, 5);
    return mg_augment_choose(s, *key, *height, *width);
}

/* augment_choose(transform, epoch, row, height, width) -> the choices for an image of that size,
 * with the names of Keras's get_random_transform where it has the same choice. */
static int core_augment_choose(lua_State *L) {
    mg_row_key key;
    int64_t height, width;
    const mg_augment_choice c = choose(L, &key, &height, &width);
    const struct {
        const char *name;
        double value;
    } values[] = {{"theta", c.rotation},
                  {"tx", c.width_shift},
                  {"ty", c.height_shift},
                  {"shear", c.shear},
                  {"zx", c.zoom_columns},
                  {"zy", c.zoom_rows},
                  {"channel_shift_intensity", c.channel_shift},
                  {"brightness", c.brightness_factor},
                  {"brightness_delta", c.brightness},
                  {"contrast", c.contrast},
                  {"saturation", c.saturation},
                  {"hue", c.hue}};
    lua_newtable(L);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        lua_pushnumber(L, values[i].value);
        lua_setfield(L, -2, values[i].name);
    }
    lua_pushboolean(L, c.horizontal_flip);
    lua_setfield(L, -2, "flip_horizontal");
    lua_pushboolean(L, c.vertical_flip);
    lua_setfield(L, -2, "flip_vertical");
    return 1;
}

static void free_block(void *block) {
    mg_free(block);
}

/* transform_apply(transform, tensor, epoch, row) -> the tensor of one row after the transform. */
static int core_transform_apply(lua_State *L) {
    const mg_transform *t = bind_to_transform(L, 1, "transform_apply");
    mg_tensor *x = bind_take_tensor(L, 2, NULL, "augment");
    const mg_row_key key = row_key(L, 3);
    const mg_field field = {.dtype = (mg_dtype)x->dtype, .shape = x->shape};
    mg_field made;
    bind_poll(L);
    bind_check(L, t->api->infer(t, &field, &made));
    bind_eval(L, &x, 1);
    mg_tensor **place = bind_new_tensor(L);
    mg_cell in = {.shape = x->shape, .data = lua_newuserdata(L, mg_tensor_bytes(x) + 1)};
    bind_check(L, mg_tensor_read(x, in.data));
    bind_owner *o = bind_new_owner(L, free_block);
    mg_cell out = {.shape = made.shape};
    o->held = out.data = mg_alloc(mg_cell_bytes(&made, &made.shape));
    if (!out.data) return bind_raise(L);
    bind_check(L, t->api->apply(t, key, &field, &in, &out));
    bind_fill(L, place, mg_tensor_from_host(out.data, made.dtype, &made.shape, NULL));
    bind_release_owner(o);
    lua_pop(L, 2);
    return 1;
}

static bool interrupted(void) {
    return mg_interrupt_pending() && mg_interrupt_take();
}

/* eigen_symmetric(matrix) -> eigenvalues float64 {n}, largest first, and eigenvectors float64 {n,
 * n}, one a row. The matrix is symmetric, float64 {n, n}. */
static int core_eigen_symmetric(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "eigen_symmetric");
    const int64_t n = t->shape.rank == 2 ? t->shape.dim[0] : 0;
    if (t->dtype != MG_F64 || n < 1 || n > MG_EIGEN_MOST || t->shape.dim[1] != n)
        bind_fail(
            L, MG_USAGE,
            "eigen_symmetric: expected a float64 matrix {n, n} with n from 1 to %d, got %s %s",
            MG_EIGEN_MOST, mg_dtype_name((mg_dtype)t->dtype), MG_SHAPE_TEXT(&t->shape));
    bind_eval(L, &t, 1);
    const mg_shape row = MG_SHAPE(n), square = MG_SHAPE(n, n);
    mg_tensor **values = bind_new_tensor(L), **vectors = bind_new_tensor(L);
    const size_t bytes = (size_t)(n * n) * sizeof(double);
    double *a = lua_newuserdata(L, 2 * bytes + (size_t)n * sizeof(double));
    double *v = a + n * n, *w = v + n * n;
    bind_check(L, mg_tensor_read(t, a));
    bind_check(L, mg_eigen_symmetric(a, (int)n, w, v, interrupted));
    bind_fill(L, values, mg_tensor_from_host(w, MG_F64, &row, NULL));
    bind_fill(L, vectors, mg_tensor_from_host(v, MG_F64, &square, NULL));
    lua_pop(L, 1);
    return 2;
}

const luaL_Reg mg_bind_transform[] = {{"augment", core_augment},
                                      {"augment_choose", core_augment_choose},
                                      {"transform_apply", core_transform_apply},
                                      {"eigen_symmetric", core_eigen_symmetric},
                                      {NULL, NULL}};
