/* CSV files in Lua. lua/mgpu/data/csv.lua checks the users' arguments; the checks here only protect
 * the C code. */
#include "bind/bind.h"
#include "bind/source.h"
#include "core/alloc.h"
#include "data/sources/csv.h"
#include <string.h>

/* ---- arguments ---- */

/* The first byte of a field of the table at `at`; 0 if it is empty or not there. */
static char byte_field(lua_State *L, int at, const char *name) {
    lua_getfield(L, at, name);
    const char c = lua_type(L, -1) == LUA_TSTRING ? *lua_tostring(L, -1) : 0;
    lua_pop(L, 1);
    return c;
}

/* Fills in the table from the arguments 1 and 2. */
static void take_table(lua_State *L, mg_csv_table *t) {
    t->paths = bind_take_texts(L, 1, "csv", &t->n_paths);
    luaL_checktype(L, 2, LUA_TTABLE);
    if (!t->n_paths) bind_fail(L, MG_USAGE, "csv: the list of paths is empty");
    t->format = (mg_csv_format){.delimiter = byte_field(L, 2, "delimiter"),
                                .quote = byte_field(L, 2, "quote"),
                                .comment = byte_field(L, 2, "comment"),
                                .trim = bind_true_field(L, 2, "trim")};
    lua_getfield(L, 2, "skip");
    t->format.skip = (int64_t)lua_tonumber(L, -1);
    lua_getfield(L, 2, "header");
    t->header = lua_isnil(L, -1)       ? MG_CSV_FIND_HEADER
                : lua_toboolean(L, -1) ? MG_CSV_HEADER
                                       : MG_CSV_NO_HEADER;
    lua_getfield(L, 2, "no_value");
    t->no_value = bind_take_texts(L, lua_gettop(L), "csv", &t->n_no_value);
}

/* Pushes {rows =, {name =, kind =, missing =}, ...}: the result of the scan. */
static void push_columns(lua_State *L, const mg_csv_table *t) {
    static const char *const kinds[] = {"int32", "int64", "float32", "string"};
    lua_createtable(L, t->n_columns, 1);
    lua_pushnumber(L, (double)t->n_rows);
    lua_setfield(L, -2, "rows");
    for (int i = 0; i < t->n_columns; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, t->columns[i].name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, kinds[t->columns[i].kind]);
        lua_setfield(L, -2, "kind");
        lua_pushnumber(L, (double)t->columns[i].missing);
        lua_setfield(L, -2, "missing");
        lua_rawseti(L, -2, i + 1);
    }
}

/* ---- fields ---- */

/* The columns of the field at `at`, from 0. Pushes the block that holds them. */
static const int *take_columns(lua_State *L, int at, int *n) {
    lua_getfield(L, at, "columns");
    luaL_checktype(L, -1, LUA_TTABLE);
    *n = (int)lua_objlen(L, -1);
    const int list = lua_gettop(L);
    int *columns = lua_newuserdata(L, (size_t)(*n + 1) * sizeof *columns);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, list, i + 1);
        columns[i] = (int)lua_tonumber(L, -1) - 1;
        lua_pop(L, 1);
    }
    if (!*n) bind_fail(L, MG_USAGE, "csv: a field without columns");
    return columns;
}

/* The field that the table at `at` describes; leaves the values it borrows on the stack. */
static mg_csv_field take_field(lua_State *L, int at) {
    mg_csv_field f = {.matrix = bind_true_field(L, at, "matrix"), .dtype = MG_I32};
    f.columns = take_columns(L, at, &f.n_columns);
    lua_getfield(L, at, "classes");
    if (lua_istable(L, -1)) f.classes = bind_take_texts(L, lua_gettop(L), "csv", &f.n_classes);
    lua_getfield(L, at, "dtype");
    const char *dtype = luaL_checkstring(L, -1);
    if (strcmp(dtype, "string") == 0)
        f.as = MG_CSV_STRINGS;
    else if (strcmp(dtype, "classes") == 0)
        f.as = MG_CSV_CLASSES;
    else
        f.dtype = (mg_dtype)bind_dtype_option(L, -1, "csv");
    if (!f.matrix && f.n_columns != 1)
        bind_fail(L, MG_USAGE, "csv: %d columns without a matrix", f.n_columns);
    return f;
}

/* The values for missing ones in the table at `at`, by column. Pushes the block that holds them. */
static mg_csv_missing *take_missing(lua_State *L, int at, int n_columns) {
    luaL_checktype(L, at, LUA_TTABLE);
    const size_t size = (size_t)n_columns * sizeof(mg_csv_missing);
    mg_csv_missing *missing = lua_newuserdata(L, size);
    memset(missing, 0, size);
    for (int i = 0; i < n_columns; i++) {
        lua_rawgeti(L, at, i + 1);
        missing[i].has_number = lua_type(L, -1) == LUA_TNUMBER;
        if (missing[i].has_number) missing[i].number = lua_tonumber(L, -1);
        if (lua_type(L, -1) == LUA_TSTRING) missing[i].text = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    return missing;
}

/* ---- the function ---- */

static void release_table(void *table) {
    mg_csv_table_clear(table);
    mg_free(table);
}

static void release_names(void *names) {
    mg_class_names_free(names);
}

static void push_names(lua_State *L, const mg_class_names *names) {
    const int32_t n = mg_class_names_count(names);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_pushstring(L, mg_class_names_get(names, i));
        lua_rawseti(L, -2, i + 1);
    }
}

/* csv_source(paths, format, choose) -> source, classes. format: {delimiter =, quote =, comment =,
 * trim =, skip =, header =, no_value =}. choose(columns) gets the result of the scan and returns
 * the fields {{dtype =, columns =, matrix =, classes =}, ...}, whose dtype may be "string" or
 * "classes", and the values for missing ones, by column. */
static int core_csv_source(lua_State *L) {
    mg_class_names *classes = NULL;
    lua_settop(L, 3);
    bind_want(L, 3, LUA_TFUNCTION, "csv_source");
    bind_poll(L);
    bind_owner *owner = bind_new_owner(L, release_table);
    mg_csv_table *t = owner->held = mg_alloc_zero(sizeof *t);
    if (!t) return bind_raise(L);
    take_table(L, t);
    bind_check(L, mg_csv_scan(t));
    lua_pushvalue(L, 3);
    push_columns(L, t);
    lua_call(L, 1, 2);
    const int chosen = lua_gettop(L) - 1, n = (int)lua_objlen(L, chosen);
    if (n < 1 || n > MG_SOURCE_FIELDS)
        bind_fail(
            L, MG_USAGE,
            "csv: %d columns as fields; at most %d are possible: name some with `columns`, or "
            "give `label` or `matrix = true` for one x of all of them",
            n, MG_SOURCE_FIELDS);
    mg_csv_field *fields = lua_newuserdata(L, (size_t)n * sizeof *fields);
    lua_newtable(L);
    const int kept = lua_gettop(L);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, chosen, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        fields[i] = take_field(L, lua_gettop(L));
        bind_keep(L, kept);
    }
    const mg_csv_missing *missing = take_missing(L, chosen + 1, t->n_columns);
    bind_owner *names = bind_new_owner(L, release_names);
    mg_source **place = bind_new_source(L);
    *place = mg_csv_source(t, missing, fields, n, &classes);
    names->held = classes;
    if (!*place) return bind_raise(L);
    if (!classes) return 1;
    push_names(L, classes);
    return 2;
}

const luaL_Reg mg_bind_source_csv[] = {{"csv_source", core_csv_source}, {NULL, NULL}};
