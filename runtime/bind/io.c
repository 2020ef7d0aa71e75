/* Files and folders in Lua, and helpers that the other bindings share: paths, and owners of C
 * objects. */
#include "bind/bind.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/io_packed.h"
#include "io/folder.h"
#include "io/tfrecord.h"
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define BIND_OWNER "mgpu.owner"

/* ---- paths and owners ---- */

const char *bind_path(lua_State *L, int index, const char *who) {
    if (lua_type(L, index) != LUA_TSTRING)
        bind_fail(L, MG_USAGE, "%s: the path must be text, got %s", who,
                  lua_isnone(L, index) ? "nothing" : luaL_typename(L, index));
    size_t n;
    const char *path = lua_tolstring(L, index, &n);
    if (!n) bind_fail(L, MG_USAGE, "%s: the path is empty", who);
    if (strlen(path) != n)
        bind_fail(L, MG_USAGE, "%s: the path \"%.200s...\" contains a zero byte", who, path);
    return path;
}

void bind_release_owner(bind_owner *o) {
    void *held = o->held;
    o->held = NULL;
    if (held) o->release(held);
}

static int owner_gc(lua_State *L) {
    bind_release_owner(luaL_checkudata(L, 1, BIND_OWNER));
    return 0;
}

bind_owner *bind_new_owner(lua_State *L, void (*release)(void *)) {
    bind_owner *o = lua_newuserdata(L, sizeof *o);
    *o = (bind_owner){NULL, release};
    if (luaL_newmetatable(L, BIND_OWNER)) {
        lua_pushcfunction(L, owner_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return o;
}

/* ---- files and folders ---- */

/* file_exists(path) -> whether a regular file is there. */
static int core_file_exists(lua_State *L) {
    lua_pushboolean(L, mg_io_exists(bind_path(L, 1, "file_exists")));
    return 1;
}

/* is_packed() -> whether this program was made by --pack, with files inside. */
static int core_is_packed(lua_State *L) {
    lua_pushboolean(L, mg_packed_at(0) != NULL);
    return 1;
}

/* is_same_file(a, b) -> whether both paths lead to one file, by links too. */
static int core_is_same_file(lua_State *L) {
    const char *a = bind_path(L, 1, "is_same_file");
    lua_pushboolean(L, mg_io_is_same(a, bind_path(L, 2, "is_same_file")));
    return 1;
}

/* folder_exists(path) -> boolean */
static int core_folder_exists(lua_State *L) {
    lua_pushboolean(L, mg_io_folder_exists(bind_path(L, 1, "folder_exists")));
    return 1;
}

static void release_paths(void *paths) {
    mg_path_list_clear(paths);
    mg_free(paths);
}

/* folder_files(folder) -> the paths of the files in it and below it, sorted; names that begin with
 * a dot are left out. */
static int core_folder_files(lua_State *L) {
    const char *folder = bind_path(L, 1, "folder_files");
    bind_owner *owner = bind_new_owner(L, release_paths);
    mg_path_list *paths = owner->held = mg_alloc_zero(sizeof *paths);
    if (!paths) return bind_raise(L);
    bind_check(L, mg_folder_files(folder, true, NULL, NULL, paths));
    lua_createtable(L, (int)paths->n, 0);
    for (int64_t i = 0; i < paths->n; i++) {
        lua_pushstring(L, mg_path_list_get(paths, i));
        lua_rawseti(L, -2, (int)i + 1);
    }
    bind_release_owner(owner);
    return 1;
}

/* Raises for a status other than MG_OK. The message begins with the name at index 2, if given. */
static void check_named(lua_State *L, mg_status status) {
    if (status != MG_OK && lua_isstring(L, 2)) mg_error_prefix(lua_tostring(L, 2));
    bind_check(L, status);
}

/* check_creatable(path, who): raises, in the name of `who`, unless a file could be made there. */
static int core_check_creatable(lua_State *L) {
    check_named(L, mg_io_check_creatable(bind_path(L, 1, "check_creatable")));
    return 0;
}

/* make_folder(path, who): with its parents. An error begins with `who`, if it is given. */
static int core_make_folder(lua_State *L) {
    check_named(L, mg_io_make_folder(bind_path(L, 1, "make_folder")));
    return 0;
}

/* new_folder(path, who) -> whether it has made the folder; false if something has that name. */
static int core_new_folder(lua_State *L) {
    bool made;
    check_named(L, mg_io_new_folder(bind_path(L, 1, "new_folder"), &made));
    lua_pushboolean(L, made);
    return 1;
}

static void release_lock(void *lock) {
    mg_io_close(lock);
}

/* lock_folder(path, who) -> a lock, held until unlock_folder or the end of the process; nil if
 * another process, or another lock of this one, holds it. */
static int core_lock_folder(lua_State *L) {
    const char *path = bind_path(L, 1, "lock_folder");
    mg_file *lock = NULL;
    bind_owner *owner = bind_new_owner(L, release_lock);
    check_named(L, mg_io_lock_folder(path, &lock));
    owner->held = lock;
    return lock ? 1 : 0;
}

/* unlock_folder(lock) */
static int core_unlock_folder(lua_State *L) {
    bind_release_owner(luaL_checkudata(L, 1, BIND_OWNER));
    return 0;
}

/* By bytes, so that the order is the same in every locale. */
static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void release_glob(void *found) {
    globfree(found);
    mg_free(found);
}

/* Adds the files inside of the program that match to the array on top of the stack. */
static void push_packed_paths(lua_State *L, const char *pattern) {
    const mg_packed_file *file;
    while (strncmp(pattern, "./", 2) == 0) pattern += 2;
    for (int64_t i = 0; (file = mg_packed_at(i)); i++) {
        if (fnmatch(pattern, file->name, FNM_PATHNAME | FNM_PERIOD) != 0) continue;
        lua_pushstring(L, file->name);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
}

/* glob(pattern) -> the paths that match, sorted by their bytes, files inside of the program first;
 * an empty array if there is none. */
static int core_glob(lua_State *L) {
    const char *pattern = bind_path(L, 1, "glob");
    bind_owner *owner = bind_new_owner(L, release_glob);
    glob_t *found = owner->held = mg_alloc_zero(sizeof *found);
    if (!found) return bind_raise(L);
    const int code = glob(pattern, GLOB_NOSORT, NULL, found);
    if (code != 0 && code != GLOB_NOMATCH)
        return bind_fail(L, code == GLOB_NOSPACE ? MG_OOM : MG_IO, "cannot look for %s", pattern);
    if (found->gl_pathc > 0) /* without any, gl_pathv is NULL */
        qsort(found->gl_pathv, found->gl_pathc, sizeof found->gl_pathv[0], compare_paths);
    lua_createtable(L, (int)found->gl_pathc, 0);
    push_packed_paths(L, pattern);
    for (size_t i = 0; i < found->gl_pathc; i++) {
        if (mg_packed_find(found->gl_pathv[i]) >= 0) continue;
        lua_pushstring(L, found->gl_pathv[i]);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
    bind_release_owner(owner);
    return 1;
}

/* The strings of the array at index, as records; they live as long as the array. */
static mg_tfrecord *check_texts(lua_State *L, int index, const char *who, size_t *n) {
    bind_want(L, index, LUA_TTABLE, who);
    *n = lua_objlen(L, index);
    mg_tfrecord *texts = lua_newuserdata(L, (*n + 1) * sizeof *texts);
    for (size_t i = 0; i < *n; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            bind_fail(L, MG_USAGE, "%s: entry %d is not a string", who, (int)i + 1);
        texts[i].bytes = lua_tolstring(L, -1, &texts[i].n);
        lua_pop(L, 1);
    }
    return texts;
}

/* write_file(path, text) or write_file(path, {text, ...}): writes the string, or these strings one
 * after another, to a file, atomically. */
static int core_write_file(lua_State *L) {
    const char *path = bind_path(L, 1, "write_file");
    size_t n;
    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_createtable(L, 1, 0);
        lua_insert(L, 2);
        lua_rawseti(L, 2, 1);
    }
    const mg_tfrecord *texts = check_texts(L, 2, "write_file", &n);
    mg_file *f = mg_io_create(path);
    mg_status status = f ? MG_OK : mg_error_code();
    for (size_t i = 0; i < n && status == MG_OK; i++)
        status = mg_io_write(f, texts[i].bytes, texts[i].n);
    if (status == MG_OK)
        status = mg_io_commit(f);
    else
        mg_io_close(f);
    bind_check(L, status);
    return 0;
}

/* append_file(path, size, text) -> the new size: writes text after the first `size` bytes of a
 * file; see mg_io_append. */
static int core_append_file(lua_State *L) {
    const char *path = bind_path(L, 1, "append_file");
    int64_t size = luaL_checkinteger(L, 2);
    size_t n;
    const char *text = luaL_checklstring(L, 3, &n);
    bind_check(L, mg_io_append(path, &size, text, n));
    lua_pushnumber(L, (double)size);
    return 1;
}

/* tfrecord_append(path, size, {record, ...}) -> the new size: writes records after the first `size`
 * bytes of a file; see io/tfrecord.h. */
static int core_tfrecord_append(lua_State *L) {
    const char *path = bind_path(L, 1, "tfrecord_append");
    int64_t size = luaL_checkinteger(L, 2);
    size_t n;
    const mg_tfrecord *records = check_texts(L, 3, "tfrecord_append", &n);
    bind_check(L, mg_tfrecord_append(path, &size, records, n));
    lua_pushnumber(L, (double)size);
    return 1;
}

/* file_fault{at = n, error = "EIO", always=}: makes the n-th file call from now fail, for tests;
 * see core/io.h. file_fault() removes it and returns whether a call has failed. */
static int core_file_fault(lua_State *L) {
    static const char *const names[] = {"EIO",   "ENOSPC", "EINTR", "EOPNOTSUPP",
                                        "short", "kill",   "slow",  NULL};
    static const int errors[] = {EIO,         ENOSPC,     EINTR,     EOPNOTSUPP,
                                 MG_IO_SHORT, MG_IO_KILL, MG_IO_SLOW};
    if (lua_isnoneornil(L, 1)) {
        lua_pushboolean(L, mg_io_fail_stop());
        return 1;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "at");
    lua_getfield(L, 1, "error");
    lua_getfield(L, 1, "always");
    const int error = errors[luaL_checkoption(L, -2, "EIO", names)];
    const int64_t at = luaL_checkinteger(L, -3);
    if (lua_toboolean(L, -1))
        mg_io_fail_from(at, error);
    else
        mg_io_fail_after(at, error);
    return 0;
}

const luaL_Reg mg_bind_io[] = {{"file_exists", core_file_exists},
                               {"is_packed", core_is_packed},
                               {"is_same_file", core_is_same_file},
                               {"check_creatable", core_check_creatable},
                               {"glob", core_glob},
                               {"folder_exists", core_folder_exists},
                               {"folder_files", core_folder_files},
                               {"make_folder", core_make_folder},
                               {"new_folder", core_new_folder},
                               {"lock_folder", core_lock_folder},
                               {"unlock_folder", core_unlock_folder},
                               {"write_file", core_write_file},
                               {"append_file", core_append_file},
                               {"tfrecord_append", core_tfrecord_append},
                               {"file_fault", core_file_fault},
                               {NULL, NULL}};
