/* Images in Lua: lua/mgpu/data/image.lua checks the users' arguments and calls these functions. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "data/image.h"
#include "device/buffer.h"
#include "graph/graph.h"

/* Makes the pixels a uint8 tensor {height, width, channels}, frees them, and pushes it. */
static int push_image(lua_State *L, mg_tensor **place, mg_image *image, mg_status status) {
    if (status != MG_OK) return bind_raise(L);
    const mg_shape shape = MG_SHAPE(image->height, image->width, image->channels);
    mg_tensor *t = mg_tensor_from_host(image->pixels, MG_U8, &shape, NULL);
    mg_free(image->pixels);
    bind_fill(L, place, t);
    bind_account(L, mg_tensor_bytes(t));
    return 1;
}

/* image_load(path, channels) -> uint8 tensor {height, width, channels}; channels 0: the file's. */
static int core_image_load(lua_State *L) {
    const char *path = bind_path(L, 1, "image.load");
    const int channels = (int)luaL_checkinteger(L, 2);
    mg_image image = {0};
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    return push_image(L, place, &image, mg_image_load(path, channels, NULL, &image));
}

/* image_decode(bytes, channels) -> the same, of the bytes of a file. */
static int core_image_decode(lua_State *L) {
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    const int channels = (int)luaL_checkinteger(L, 2);
    mg_image image = {0};
    bind_poll(L);
    mg_tensor **place = bind_new_tensor(L);
    return push_image(L, place, &image,
                      mg_image_decode((const uint8_t *)bytes, n, channels, NULL, &image));
}

static void free_block(void *block) {
    mg_free(block);
}

/* image_encode(tensor, quality) -> the bytes of a JPEG file of that quality, or for quality 0 of a
 * PNG file. The tensor is uint8 {height, width, 1, 3 or 4}. */
static int core_image_encode(lua_State *L) {
    mg_tensor *t = bind_take_tensor(L, 1, NULL, "image.encode");
    const int quality = (int)luaL_checkinteger(L, 2);
    const mg_shape *s = &t->shape;
    mg_image_file file;
    if (t->dtype != MG_U8 || s->rank != 3 || s->dim[0] > MG_IMAGE_SIDE ||
        s->dim[1] > MG_IMAGE_SIDE || mg_tensor_bytes(t) > MG_IMAGE_BYTES)
        bind_fail(L, MG_USAGE,
                  "image: %s of shape %s is not a uint8 image {rows, columns, channels} within the "
                  "limits",
                  mg_dtype_name((mg_dtype)t->dtype), MG_SHAPE_TEXT(s));
    mg_image image = {(int)s->dim[0], (int)s->dim[1], (int)s->dim[2], NULL};
    bind_poll(L);
    bind_eval(L, &t, 1);
    bind_owner *o = bind_new_owner(L, free_block);
    image.pixels = lua_newuserdata(L, mg_tensor_bytes(t) + 1);
    bind_check(L, mg_tensor_read(t, image.pixels));
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
