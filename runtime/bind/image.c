/* Images in Lua: lua/mgpu/data/image.lua checks the users' arguments and calls these functions. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "data/image.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include <string.h>

/* The dtypes of images: of 8 bits, and those that hold 16. */
static mg_dtype check_dtype(lua_State *L, int index) {
    static const char *const names[] = {"uint8", "int32", "float32", NULL};
    static const mg_dtype dtypes[] = {MG_U8, MG_I32, MG_F32};
    return dtypes[luaL_checkoption(L, index, NULL, names)];
}

/* Makes the pixels a tensor {height, width, channels}, frees them, and pushes it. */
static int push_image(lua_State *L, mg_tensor **place, mg_dtype dtype, mg_image *image,
                      mg_status status) {
    if (status != MG_OK) return bind_raise(L);
    const mg_shape shape = MG_SHAPE(image->height, image->width, image->channels);
    void *values = image->wide ? mg_image_take_values(image, dtype) : image->pixels;
    if (!values) return bind_raise(L);
    mg_tensor *t = mg_tensor_from_host(values, dtype, &shape, NULL);
    mg_free(values);
    bind_fill(L, place, t);
    bind_account(L, mg_tensor_bytes(t));
    return 1;
}

/* image_load(path, channels, dtype) -> tensor {height, width, channels}; channels 0: the file's;
 * dtype "uint8", or all 16 bits as "int32" from 0 to 65535 or "float32" from 0 to 1. */
static int core_image_load(lua_State *L) {
    const char *path = bind_path(L, 1, "image.load");
    const int channels = (int)luaL_checkinteger(L, 2);
    const mg_dtype dtype = check_dtype(L, 3);
    mg_image image = {0};
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    return push_image(L, place, dtype, &image,
                      mg_image_load(path, (mg_image_form){channels, dtype != MG_U8}, NULL, &image));
}

/* image_decode(bytes, channels, dtype) -> the same, of the bytes of a file. */
static int core_image_decode(lua_State *L) {
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    const int channels = (int)luaL_checkinteger(L, 2);
    const mg_dtype dtype = check_dtype(L, 3);
    mg_image image = {0};
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    return push_image(L, place, dtype, &image,
                      mg_image_decode((const uint8_t *)bytes, n,
                                      (mg_image_form){channels, dtype != MG_U8}, NULL, &image));
}

static void free_block(void *block) {
    mg_free(block);
}

/* From int32, 0 to 65535, to 16 bits in place. */
static void narrow(uint8_t *pixels, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t from;
        memcpy(&from, pixels + i * sizeof from, sizeof from);
        const uint16_t to = (uint16_t)from;
        memcpy(pixels + i * sizeof to, &to, sizeof to);
    }
}

/* image_encode(tensor, quality) -> the bytes of a JPEG file of that quality, or for quality 0 of a
 * PNG file. The tensor is uint8 {height, width, 1, 3 or 4}, or for a PNG file of 16 bits int32 from
 * 0 to 65535. */
static int core_image_encode(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "image.encode");
    const int quality = (int)luaL_checkinteger(L, 2);
    const mg_shape *s = &t->shape;
    mg_image_file file;
    const bool wide = t->dtype == MG_I32 && !quality;
    if ((t->dtype != MG_U8 && !wide) || s->rank != 3 || s->dim[0] > MG_IMAGE_SIDE ||
        s->dim[1] > MG_IMAGE_SIDE || mg_tensor_bytes(t) >> wide > MG_IMAGE_BYTES)
        bind_fail(L, MG_USAGE,
                  "image: %s of shape %s is not a uint8 image {rows, columns, channels} within the "
                  "limits",
                  mg_dtype_name((mg_dtype)t->dtype), MG_SHAPE_TEXT(s));
    mg_image image = {(int)s->dim[0], (int)s->dim[1], (int)s->dim[2], NULL, wide};
    bind_poll(L);
    bind_eval(L, &t, 1);
    bind_owner *o = bind_new_owner(L, free_block);
    image.pixels = lua_newuserdata(L, mg_tensor_bytes(t) + 1);
    bind_check(L, mg_tensor_read(t, image.pixels));
    if (wide) narrow(image.pixels, mg_image_samples(&image));
    bind_check(L, quality ? mg_image_encode_jpeg(&image, quality, &file)
                          : mg_image_encode_png(&image, &file));
    o->held = file.bytes;
    lua_pushlstring(L, (const char *)file.bytes, file.n);
    bind_release_owner(o);
    return 1;
}

const luaL_Reg mg_bind_image[] = {{"image_load", core_image_load},
                                  {"image_decode", core_image_decode},
                                  {"image_encode", core_image_encode},
                                  {NULL, NULL}};
