/* Data sets in Lua: CIFAR's files and drawn shapes. lua/mgpu/data/datasets/ checks the arguments of
 * users and gives these functions well-formed ones. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "data/cifar.h"
#include "data/drawings.h"
#include "device/buffer.h"
#include "graph/graph.h"

enum { MOST_FILES = 16 };

static void free_cifar(void *c) {
    mg_cifar_free(c);
    mg_free(c);
}

/* The texts in the array at index, borrowed from it; returns their number. */
static size_t text_array(lua_State *L, int index, const char *texts[MOST_FILES]) {
    const size_t n = lua_objlen(L, index);
    luaL_argcheck(L, n <= MOST_FILES, index, "too many files");
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        texts[i] = bind_path(L, -1, "cifar_load");
        lua_pop(L, 1);
    }
    return n;
}

/* The format with the numbers of classes in the array at index. */
static mg_cifar_format check_format(lua_State *L, int index) {
    mg_cifar_format format = {.labels = (int)lua_objlen(L, index)};
    luaL_argcheck(L, format.labels >= 1 && format.labels <= MG_CIFAR_LABELS, index, "classes");
    for (int i = 0; i < format.labels; i++) {
        lua_rawgeti(L, index, i + 1);
        format.classes[i] = (int)luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    return format;
}

/* cifar_load(paths, members, {number of classes, ...}) -> images uint8 {rows, 32, 32, 3}, labels
 * uint8 {rows, number of labels}: the records of the files in order or, with an array of members,
 * of these files in the archive paths[1]. */
static int core_cifar_load(lua_State *L) {
    const char *paths[MOST_FILES], *members[MOST_FILES];
    luaL_checktype(L, 1, LUA_TTABLE);
    const size_t n = text_array(L, 1, paths);
    const size_t n_members = lua_istable(L, 2) ? text_array(L, 2, members) : 0;
    const mg_cifar_format format = check_format(L, 3);
    luaL_argcheck(L, n > 0, 1, "no path");
    bind_poll(L);
    mg_tensor **x = bind_new_tensor(L), **y = bind_new_tensor(L);
    bind_owner *o = bind_new_owner(L, free_cifar);
    mg_cifar *c = o->held = mg_alloc_zero(sizeof *c);
    mg_status status = c ? MG_OK : MG_OOM;
    if (status == MG_OK && n_members)
        status = mg_cifar_read_archive(c, &format, paths[0], members, n_members);
    for (size_t i = 0; status == MG_OK && !n_members && i < n; i++)
        status = mg_cifar_read(c, &format, paths[i]);
    bind_check(L, status);
    const mg_shape images = MG_SHAPE(c->rows, MG_CIFAR_SIDE, MG_CIFAR_SIDE, 3);
    const mg_shape labels = MG_SHAPE(c->rows, format.labels);
    bind_fill(L, x, mg_tensor_from_host(c->images, MG_U8, &images, NULL));
    bind_fill(L, y, mg_tensor_from_host(c->labels, MG_U8, &labels, NULL));
    bind_release_owner(o);
    lua_pop(L, 1);
    bind_account(L, mg_tensor_bytes(*x));
    return 2;
}

/* shapes(n, size, seed) -> images uint8 {n, size, size, 3}, labels int32 {n}. */
static int core_shapes(lua_State *L) {
    const int64_t n = (int64_t)luaL_checknumber(L, 1), size = (int64_t)luaL_checknumber(L, 2);
    const uint64_t seed = (uint64_t)luaL_checknumber(L, 3);
    luaL_argcheck(L, n >= 0 && n <= 1000 * 1000, 1, "number of images");
    luaL_argcheck(L, size >= 1 && size <= 1024, 2, "size");
    const mg_shape image_shape = MG_SHAPE(n, size, size, 3), label_shape = MG_SHAPE(n);
    bind_poll(L);
    mg_tensor **x = bind_new_tensor(L), **y = bind_new_tensor(L);
    bind_owner *images = bind_new_owner(L, mg_free), *labels = bind_new_owner(L, mg_free);
    images->held = mg_alloc((size_t)(n * size * size * 3) + 1);
    labels->held = mg_alloc(((size_t)n + 1) * sizeof(int32_t));
    if (!images->held || !labels->held) bind_check(L, MG_OOM);
    bind_check(L, mg_shapes_draw(n, (int)size, seed, images->held, labels->held));
    bind_fill(L, x, mg_tensor_from_host(images->held, MG_U8, &image_shape, NULL));
    bind_fill(L, y, mg_tensor_from_host(labels->held, MG_I32, &label_shape, NULL));
    bind_release_owner(images), bind_release_owner(labels);
    lua_pop(L, 2);
    bind_account(L, mg_tensor_bytes(*x));
    return 2;
}

const luaL_Reg mg_bind_datasets[] = {
    {"cifar_load", core_cifar_load}, {"shapes", core_shapes}, {NULL, NULL}};
