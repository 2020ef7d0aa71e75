/* Tensors as bytes in Lua strings: their elements, row-major and little-endian, and whole .npy
 * files (io/npy.h), for what is sent and received. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "io/npy.h"
#include <string.h>

/* The sizes in the array at index. */
static mg_shape take_sizes(lua_State *L, int index, const char *who) {
    mg_shape shape = {.rank = 0};
    luaL_checktype(L, index, LUA_TTABLE);
    const size_t rank = lua_objlen(L, index);
    if (rank > MG_MAX_RANK)
        bind_fail(L, MG_USAGE, "%s: a shape has at most %d axes, not %zu", who, MG_MAX_RANK, rank);
    for (shape.rank = 0; (size_t)shape.rank < rank; shape.rank++) {
        lua_rawgeti(L, index, shape.rank + 1);
        const double size = luaL_checknumber(L, -1);
        if (!(size >= 0 && size < 0x1p53))
            bind_fail(L, MG_USAGE, "%s: %g is not the size of an axis", who, size);
        shape.dim[shape.rank] = (int64_t)size;
        lua_pop(L, 1);
    }
    return shape;
}

/* The bytes of a tensor of this dtype and shape. */
static size_t bytes_of(lua_State *L, const mg_shape *shape, mg_dtype dtype, const char *who) {
    size_t n = mg_dtype_size(dtype);
    bool fits = true;
    for (int i = 0; i < shape->rank && fits; i++) fits = mg_size_mul(n, (size_t)shape->dim[i], &n);
    if (!fits)
        bind_fail(L, MG_DATA, "%s: a tensor of shape %s is too large", who, MG_SHAPE_TEXT(shape));
    return n;
}

/* tensor_from_bytes(bytes, dtype, shape) -> a tensor on the default device. */
static int core_tensor_from_bytes(lua_State *L) {
    static const char who[] = "tensor_from_bytes";
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    const int dtype = bind_dtype_option(L, 2, who);
    if (dtype < 0) return bind_fail(L, MG_USAGE, "%s: give a dtype", who);
    const mg_shape shape = take_sizes(L, 3, who);
    if (bytes_of(L, &shape, (mg_dtype)dtype, who) != n)
        return bind_fail(L, MG_USAGE, "%s: %zu bytes are not a tensor of shape %s", who, n,
                         MG_SHAPE_TEXT(&shape));
    bind_account(L, n);
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_tensor_from_host(bytes, (mg_dtype)dtype, &shape, NULL));
    return 1;
}

/* Pushes the bytes of n_head bytes `head` and then the tensor's elements. */
static int push_bytes(lua_State *L, mg_tensor *t, const char *head, size_t n_head) {
    const size_t n = mg_tensor_bytes(t);
    char *bytes = lua_newuserdata(L, n_head + n + 1);
    if (n_head) memcpy(bytes, head, n_head);
    bind_check(L, mg_tensor_read(t, bytes + n_head));
    lua_pushlstring(L, bytes, n_head + n);
    return 1;
}

/* tensor_bytes(t) -> the elements. */
static int core_tensor_bytes(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "tensor_bytes");
    bind_eval(L, &t, 1);
    return push_bytes(L, t, NULL, 0);
}

/* npy_encode(t) -> a .npy file. Errors: bfloat16. */
static int core_npy_encode(lua_State *L) {
    char header[MG_NPY_HEADER];
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "npy_encode");
    bind_eval(L, &t, 1);
    const size_t n = mg_npy_header(t, "npy_encode", "", header);
    if (!n) return bind_raise(L);
    return push_bytes(L, t, header, n);
}

/* ---- reading .npy ---- */

typedef struct memory {
    const char *bytes;
    size_t left;
} memory;

static mg_status read_memory(void *context, void *dst, size_t n) {
    memory *m = context;
    if (n > m->left) return mg_fail(MG_DATA, "npy_decode: the bytes end within the array");
    if (n) memcpy(dst, m->bytes, n);
    m->bytes += n;
    m->left -= n;
    return MG_OK;
}

/* npy_decode(bytes) -> the tensor of a .npy file, on the default device. */
static int core_npy_decode(lua_State *L) {
    memory from = {.bytes = luaL_checklstring(L, 1, &from.left)};
    mg_npy_array a = {.path = "npy_decode",
                      .name = "",
                      .bytes = (int64_t)from.left,
                      .source = read_memory,
                      .context = &from};
    bind_check(L, mg_npy_read_header(&a));
    const size_t n = bytes_of(L, &a.shape, a.dtype, "npy_decode");
    bind_account(L, n);
    mg_tensor **place = bind_new_tensor(L);
    void *values = lua_newuserdata(L, n + 1);
    bind_check(L, mg_npy_read_values(&a, values));
    bind_fill(L, place, mg_tensor_from_host(values, a.dtype, &a.shape, NULL));
    lua_pop(L, 1);
    return 1;
}

const luaL_Reg mg_bind_tensor_bytes[] = {{"tensor_from_bytes", core_tensor_from_bytes},
                                         {"tensor_bytes", core_tensor_bytes},
                                         {"npy_encode", core_npy_encode},
                                         {"npy_decode", core_npy_decode},
                                         {NULL, NULL}};
