/* HDF5 files in Lua, as arrays of entries in the order of io/h5.h:
 *
 *     {path = "layers/dense"}                                             a group
 *     {path = "layers/dense/vars/0", tensor = t}                          a dataset (and read,
 *                                                  stored = "int16", if it was widened; to write
 *                                                  stored = "int8": t is uint8, with its bytes)
 *     {path = "layers/dense", attribute = "name", text = "dense"}         an attribute: text,
 *     {path = "", attribute = "layer_names", text = {"dense", ...}}       an array of texts,
 *     {path = "", attribute = "version", tensor = t}                      or numbers
 * core.h5_read(path) and core.h5_read(archive, name) return one, core.h5_write(path, entries) and
 * core.h5_make(entries, who) take one. */
#include "bind/bind.h"
#include "io/h5.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- reading ---- */

static void release_tree(void *tree) {
    mg_h5_free(tree);
}

/* Sets the field `text` of the table on top of the stack. */
static void push_texts(lua_State *L, const mg_h5_entry *e) {
    if (e->single) {
        lua_pushstring(L, e->texts[0]);
    } else {
        lua_createtable(L, (int)e->n_texts, 0);
        for (size_t i = 0; i < e->n_texts; i++) {
            lua_pushstring(L, e->texts[i]);
            lua_rawseti(L, -2, (int)i + 1);
        }
    }
    lua_setfield(L, -2, "text");
}

static void push_entry(lua_State *L, const mg_h5_entry *e) {
    lua_createtable(L, 0, 3);
    lua_pushstring(L, e->path);
    lua_setfield(L, -2, "path");
    if (e->attribute) {
        lua_pushstring(L, e->attribute);
        lua_setfield(L, -2, "attribute");
    }
    if (e->tensor) {
        mg_tensor **place = bind_new_tensor(L);
        bind_fill(L, place, mg_tensor_retain(e->tensor));
        bind_account(L, mg_tensor_bytes(*place));
        lua_setfield(L, -2, "tensor");
        if (e->stored) lua_pushstring(L, e->stored);
        if (e->stored) lua_setfield(L, -2, "stored");
    } else if (e->attribute) {
        push_texts(L, e);
    }
}

/* h5_read(path) or h5_read(archive, name) -> array of entries. The whole file is read before the
 * table is made. */
static int core_h5_read(lua_State *L) {
    const bool zipped = lua_isuserdata(L, 1);
    mg_zip *zip = zipped ? bind_check_zip(L) : NULL;
    const char *name = bind_path(L, zipped ? 2 : 1, "h5_read");
    const mg_zip_entry *entry = zipped ? mg_zip_find(zip, name) : NULL;
    if (zipped && !entry) bind_fail(L, MG_DATA, "h5_read: the archive has no \"%s\"", name);
    bind_poll(L);
    bind_owner *o = bind_new_owner(L, release_tree);
    const mg_h5_tree *tree = o->held =
        zipped ? mg_h5_load_zipped(zip, entry, name) : mg_h5_load(name);
    if (!tree) return bind_raise(L);
    lua_createtable(L, (int)tree->n, 0);
    for (size_t i = 0; i < tree->n; i++) {
        push_entry(L, &tree->entries[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    bind_release_owner(o);
    return 1;
}

/* ---- writing ---- */

/* Adds the text on top of the stack, and removes it. */
static void add_text(lua_State *L, mg_h5_entry *e) {
    size_t n;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
    if (!text || strlen(text) != n)
        bind_fail(L, MG_USAGE,
                  "h5_write: the attribute \"%s\" of \"%s\" must be a string without zero bytes",
                  e->attribute, e->path);
    bind_check(L, mg_h5_add_text(e, text, n));
    lua_pop(L, 1);
}

/* Adds the entry that the table at `at` describes. */
static void add_entry(lua_State *L, mg_h5_tree *tree, int at) {
    lua_getfield(L, at, "path");
    const bool root = lua_type(L, -1) == LUA_TSTRING && lua_objlen(L, -1) == 0;
    const char *path = root ? "" : bind_path(L, -1, "h5_write");
    lua_getfield(L, at, "attribute");
    const char *attribute = lua_isnil(L, -1) ? NULL : bind_path(L, -1, "h5_write");
    lua_getfield(L, at, "tensor");
    mg_tensor *t = lua_isnil(L, -1) ? NULL : bind_take_tensor(L, lua_gettop(L), NULL, "h5_write");
    mg_h5_entry *e = mg_h5_add(tree, path, attribute, t);
    if (!e) bind_raise(L);
    if (t) {
        lua_getfield(L, at, "stored");
        const char *stored = lua_tostring(L, -1);
        if (stored && (strcmp(stored, "int8") != 0 || t->dtype != MG_U8 || attribute))
            bind_fail(L, MG_USAGE, "h5_write: %s: only a dataset of uint8 can be stored as int8",
                      path);
        if (stored) e->stored = "int8";
    }
    if (!attribute || t) return;
    lua_getfield(L, at, "text");
    e->single = !lua_istable(L, -1);
    if (e->single) add_text(L, e);
    for (int i = 1; !e->single && i <= (int)lua_objlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        add_text(L, e);
    }
}

/* The tree of the array at `at`, in an owner that it pushes. Tensors are evaluated together. */
static mg_h5_tree *take_tree(lua_State *L, int at) {
    luaL_checktype(L, at, LUA_TTABLE);
    bind_poll(L);
    bind_owner *owner = bind_new_owner(L, release_tree);
    mg_h5_tree *tree = owner->held = mg_h5_new();
    if (!tree) bind_raise(L);
    const int top = lua_gettop(L);
    for (int i = 1; i <= (int)lua_objlen(L, at); i++) {
        lua_rawgeti(L, at, i);
        add_entry(L, tree, top + 1);
        lua_settop(L, top);
    }
    mg_tensor **list = lua_newuserdata(L, (tree->n + 1) * sizeof *list);
    int n = 0;
    for (size_t i = 0; i < tree->n; i++)
        if (tree->entries[i].tensor) list[n++] = tree->entries[i].tensor;
    if (n) bind_eval(L, list, n);
    lua_pop(L, 1);
    return tree;
}

/* h5_write(path, entries): writes the file atomically. */
static int core_h5_write(lua_State *L) {
    const char *path = bind_path(L, 1, "h5_write");
    bind_check(L, mg_h5_save(take_tree(L, 2), path));
    bind_release_owner(lua_touserdata(L, -1));
    return 0;
}

/* `descriptor` is the file descriptor plus one, because NULL stands for none. */
static void close_image(void *descriptor) {
    close((int)(intptr_t)descriptor - 1);
}

/* h5_make(entries, who) -> an object that keeps the finished file in memory until it is collected,
 * and the path under which this process can read it. */
static int core_h5_make(lua_State *L) {
    char path[64];
    const char *who = luaL_optstring(L, 2, "h5_make");
    bind_owner *o = bind_new_owner(L, close_image);
    const int fd = mg_h5_make(take_tree(L, 1), who);
    if (fd < 0) return bind_raise(L);
    o->held = (void *)(intptr_t)(fd + 1);
    bind_release_owner(lua_touserdata(L, -1));
    lua_pop(L, 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lua_pushstring(L, path);
    return 2;
}

const luaL_Reg mg_bind_h5[] = {{"h5_read", core_h5_read},
                               {"h5_write", core_h5_write},
                               {"h5_make", core_h5_make},
                               {NULL, NULL}};
