/* Sources of files in Lua: folders of images, lines of text, NumPy's arrays. The functions of
 * lua/mgpu/data check the users' arguments; the checks here only protect the C code. */
#include "bind/source.h"
#include "bind/bind.h"
#include "data/sources/image_folder.h"
#include "data/sources/sources.h"
#include <string.h>

/* ---- arguments ---- */

const char **bind_take_texts(lua_State *L, int index, const char *who, int *n) {
    luaL_checktype(L, index, LUA_TTABLE);
    *n = (int)lua_objlen(L, index);
    const char **texts = lua_newuserdata(L, (size_t)(*n + 1) * sizeof *texts);
    for (int i = 0; i < *n; i++) {
        size_t bytes;
        lua_rawgeti(L, index, i + 1);
        texts[i] = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &bytes) : NULL;
        if (!texts[i] || strlen(texts[i]) != bytes)
            bind_fail(L, MG_USAGE, "%s: entry %d of the list must be a string without zero bytes",
                      who, i + 1);
        lua_pop(L, 1);
    }
    return texts;
}

void bind_keep(lua_State *L, int at) {
    for (int n = (int)lua_objlen(L, at); lua_gettop(L) > at;) lua_rawseti(L, at, ++n);
}

bool bind_true_field(lua_State *L, int at, const char *name) {
    lua_getfield(L, at, name);
    const bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static lua_Number number_field(lua_State *L, int at, const char *name) {
    lua_getfield(L, at, name);
    const lua_Number value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

/* ---- folders of images ---- */

static void release_list(void *list) {
    mg_image_list_release(list);
}

/* The field `labels` of the table at `at`. */
static mg_folder_labels take_labels(lua_State *L, int at) {
    static const char *const names[] = {"none", "int", "binary", "categorical", NULL};
    lua_getfield(L, at, "labels");
    const int labels = luaL_checkoption(L, -1, NULL, names);
    lua_pop(L, 1);
    return (mg_folder_labels)labels;
}

/* Reads the arguments 1 and 2; leaves the values it borrows on the stack. */
static mg_image_folder take_folder(lua_State *L) {
    mg_image_folder f = {.path = bind_path(L, 1, "image_folder")};
    luaL_checktype(L, 2, LUA_TTABLE);
    f.labels = take_labels(L, 2);
    f.follow_links = bind_true_field(L, 2, "follow_links");
    f.skip_bad = bind_true_field(L, 2, "skip_bad");
    lua_getfield(L, 2, "extensions");
    f.extensions = bind_take_texts(L, lua_gettop(L), "image_folder", &f.n_extensions);
    lua_getfield(L, 2, "classes");
    if (lua_istable(L, -1))
        f.classes = bind_take_texts(L, lua_gettop(L), "image_folder", &f.n_classes);
    return f;
}

static void push_path_list(lua_State *L, const mg_path_list *l) {
    lua_createtable(L, (int)l->n, 0);
    for (int64_t i = 0; i < l->n; i++) {
        lua_pushstring(L, mg_path_list_get(l, i));
        lua_rawseti(L, -2, (int)i + 1);
    }
}

/* Pushes the source of a subset, named by the string at index; nil: of all files. */
static void push_subset(lua_State *L, mg_image_list *l, int index) {
    const char *name = lua_tostring(L, index);
    const bool validates = name && strcmp(name, "validation") == 0;
    const mg_image_split split = {
        .subset = !name       ? MG_SUBSET_ALL
                  : validates ? MG_SUBSET_VALIDATION
                              : MG_SUBSET_TRAINING,
        .validation = number_field(L, 2, "validation_split"),
        .seed = (uint64_t)number_field(L, 2, "seed"),
    };
    mg_source **place = bind_new_source(L);
    const mg_image_form form = {(int)number_field(L, 2, "channels"),
                                number_field(L, 2, "bits") == 16};
    *place = mg_image_folder_source(l, form, &split);
    if (!*place) bind_raise(L);
}

/* image_folder_source(path, {labels =, classes =, extensions =, follow_links =, skip_bad =,
 * channels =, bits =, validation_split =, seed =}, subset, ...) -> names of classes, paths left
 * out, and a source for each subset ("training", "validation"; nil: all). */
static int core_image_folder_source(lua_State *L) {
    const int n = lua_gettop(L);
    bind_poll(L);
    luaL_checkstack(L, n + 16, "image_folder");
    const mg_image_folder f = take_folder(L);
    bind_owner *owner = bind_new_owner(L, release_list);
    mg_image_list *l = owner->held = mg_image_list_new(&f);
    if (!l) return bind_raise(L);
    push_path_list(L, mg_image_list_classes(l));
    push_path_list(L, mg_image_list_skipped(l));
    for (int i = 3; i <= n; i++) push_subset(L, l, i);
    return n;
}

/* ---- lines of text ---- */

/* text_lines_source(paths, skip) -> a source of texts. */
static int core_text_lines_source(lua_State *L) {
    int n;
    const lua_Number skip = luaL_checknumber(L, 2);
    const char **paths = bind_take_texts(L, 1, "text_lines", &n);
    if (!n) bind_fail(L, MG_USAGE, "text_lines: the list of paths is empty");
    bind_poll(L);
    mg_source **place = bind_new_source(L);
    *place = mg_text_lines_source(paths, n, (int64_t)skip);
    return *place ? 1 : bind_raise(L);
}

/* ---- NumPy's arrays ---- */

/* numpy_source(who, paths, names) -> a source whose fields are the arrays of these names (false: of
 * a .npy file) in these files. */
static int core_numpy_source(lua_State *L) {
    int n;
    const char *who = luaL_checkstring(L, 1);
    const char **paths = bind_take_texts(L, 2, who, &n);
    luaL_checktype(L, 3, LUA_TTABLE);
    if (n < 1 || n > MG_SOURCE_FIELDS)
        bind_fail(L, MG_USAGE, "%s: got %d arrays; 1 to %d are possible", who, n, MG_SOURCE_FIELDS);
    mg_numpy_field *fields = lua_newuserdata(L, (size_t)n * sizeof *fields);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1); /* the table keeps it */
        fields[i] = (mg_numpy_field){paths[i], lua_tostring(L, -1)};
        lua_pop(L, 1);
    }
    bind_poll(L);
    mg_source **place = bind_new_source(L);
    *place = mg_numpy_source(who, fields, n);
    return *place ? 1 : bind_raise(L);
}

const luaL_Reg mg_bind_source_files[] = {{"image_folder_source", core_image_folder_source},
                                         {"text_lines_source", core_text_lines_source},
                                         {"numpy_source", core_numpy_source},
                                         {NULL, NULL}};
