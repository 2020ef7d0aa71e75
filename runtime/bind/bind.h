/* The Lua binding: functions that its files share.
 *
 * Errors. A C function that fails has stored a message (mg_fail). bind_raise turns it into a Lua
 * error whose text begins with the user's file and line. lua_error does not return and frees
 * nothing, hence the rules of ownership.
 *
 * Ownership. A tensor that a binding function makes goes into a userdata that was created empty
 * before, so that an error cannot leak it: bind_new_tensor, then bind_fill at once. Other C objects
 * (stores, JSON, streams) are held by userdata with a __gc in the same way. Arguments that are not
 * tensors yet (numbers, tables, variables) are replaced on the stack by tensors, and so live as
 * long as the call. */
#ifndef MG_BIND_BIND_H
#define MG_BIND_BIND_H

#include "core/status.h"
#include "core/tensor.h"
#include "core/variable.h"
#include "io/store.h"
#include "ops/op.h"
#include <lauxlib.h>
#include <lua.h>

#define BIND_TENSOR "mgpu.tensor"
#define BIND_VARIABLE "mgpu.variable"

/* ---- bind.c: errors ---- */

/* Raises the stored error as a string: "file:line: message", the line being the user's. Does not
 * return. */
int bind_raise(lua_State *L) __attribute__((noreturn));
/* Stores a message and raises it. Does not return. */
int bind_fail(lua_State *L, mg_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* Raises if status is not MG_OK. */
void bind_check(lua_State *L, mg_status status);
/* Raises unless the argument has this Lua type: "grad: argument 1 must be a function, got nil". */
void bind_want(lua_State *L, int index, int type, const char *who);
/* Raises unless the value at index (an absolute one) is a table whose keys are all among the n
 * known names. */
void bind_check_options(lua_State *L, int index, const char *who, const char *const *known, int n);
/* Raises "interrupted" after Ctrl-C (or mg_interrupt). Every function that may take long calls it
 * first. */
void bind_poll(lua_State *L);
/* Lets an attached prompt run its commands here, if it wants to and nothing is half done
 * (core/visit.h). Raises nothing but "interrupted". */
void bind_visit(lua_State *L);
/* Remembers the user's line for the tensors made from here on, which plans, profiles and reports
 * show. Does nothing outside of traces, unless a profile is recorded. */
void bind_note_line(lua_State *L);
/* The same, always: for a call that may take long. *last: zeros, or of the call before, in the same
 * state, which is likely to come from the same line. */
typedef struct bind_line {
    char file[LUA_IDSIZE];
    int line;
    const char *text; /* "file:line", interned */
} bind_line;
void bind_note_caller(lua_State *L, bind_line *last);
/* Pops the string on top of the stack, and keeps it as long as the state lives. */
const char *bind_intern(lua_State *L);
/* True if the source of a function (lua_Debug) is this project's: a Lua file in lua/mgpu/ or in the
 * model zoo models/ beside it, or a piece of Lua that the program runs for an option. */
bool bind_is_ours(lua_State *L, const char *source);
/* "SIGINT" and so on, for the signals that interrupt or stop; else NULL. */
const char *bind_signal_name(int number);
/* Pushes the text with its control characters visible (core/printable.h). */
void bind_push_printable(lua_State *L, const char *text, size_t n, bool one_line);
/* From here on the output goes to a terminal of this width elsewhere (0: to no terminal), until -1.
 */
void bind_terminal_pretend(int columns);
/* Adds functions to the table on top of the stack. */
void bind_register(lua_State *L, const luaL_Reg *functions);

/* ---- pairs.c ---- */

/* Replaces the globals pairs and next, unless they are functions in Lua, by functions that LuaJIT
 * does not compile: its compiled loops over tables are wrong. A second call changes nothing. */
void bind_replace_pairs(lua_State *L);

/* ---- tensor.c: userdata of tensors and variables ---- */

/* Pushes an empty tensor userdata and returns the place for its tensor; fill it at once. */
mg_tensor **bind_new_tensor(lua_State *L);
/* Puts an owned tensor into the userdata at place, or raises the stored error if it is NULL. */
void bind_fill(lua_State *L, mg_tensor **place, mg_tensor *owned);
/* Pushes result k, from 0, of a tensor of an op that has several. */
void bind_push_result(lua_State *L, mg_tensor *of, int k);
/* The tensor at index, borrowed; NULL if it is something else. Raises if the tensor was freed. */
mg_tensor *bind_to_tensor(lua_State *L, int index);
/* The same, but NULL for a tensor that was freed. */
mg_tensor *bind_peek_tensor(lua_State *L, int index);
/* Replaces the value at index (tensor, variable, number, boolean or nested table) by a tensor
 * userdata and returns its tensor, borrowed from there. Numbers get the dtype of `like` (NULL:
 * floatx). Raises for anything else; `who` begins the message. */
mg_tensor *bind_take_tensor(lua_State *L, int index, const mg_tensor *like, const char *who);
/* The variable at index, borrowed; NULL if it is something else. */
mg_variable *bind_to_variable(lua_State *L, int index);
/* The variable's current value, cast to the dtype of core.autocast if it is floating. Owned; NULL:
 * an error is stored. */
mg_tensor *bind_read_variable(mg_variable *v);
/* Computes n tensors. If memory is short, collects garbage once and tries again; raises on failure.
 */
void bind_eval(lua_State *L, mg_tensor *const *t, int n);
/* The dtype of numbers and tables without a stated one: float32 unless core.floatx changed it. */
mg_dtype bind_floatx(void);

/* The dtype named by the string at index; -1 for nil or no value. Raises for anything else. */
int bind_dtype_option(lua_State *L, int index, const char *who);

/* ---- nested.c: arrays and nested tables ---- */

/* The number of entries of the array at index (an absolute one), or -1 if it has holes or other
 * keys; `fault` then describes the first one. */
int64_t bind_array_length(lua_State *L, int index, char *fault, size_t size);
/* Pushes a tensor made from the nested table at index (an absolute one) and returns it, borrowed.
 * dtype -1: bool if all values are booleans, else floatx. device NULL: the default. */
mg_tensor *bind_from_table(lua_State *L, int index, int dtype, mg_device *device, const char *who);

/* ---- zip.c ---- */

/* The open archive that argument 1 must be, borrowed. */
struct mg_zip *bind_check_zip(lua_State *L);

/* ---- device.c ---- */

/* The device of that name, opened. Raises, with the names of the visible devices, if it does not
 * exist or --devices does not list it; cpu:0, where data come from, is always visible. */
mg_device *bind_device(lua_State *L, const char *name);

/* ---- memory.c: garbage collection ---- */

/* Tells the garbage collector that memory outside the Lua heap is about to be allocated. */
void bind_account(lua_State *L, size_t bytes);
/* Releases a tensor, or NULL, for a program that wants its memory back at once: :free(), tidy. */
void bind_free_tensor(mg_tensor *t);
/* Inside mgpu.tidy: lists the tensor userdata on top of the stack among those to free. */
void bind_note_made(lua_State *L);
/* Between these calls no tidy is open: the tensors that are made stay. The first returns what the
 * second needs. */
int bind_tidy_suspend(void);
void bind_tidy_resume(int suspended);

/* ---- io.c: paths, and owners of C objects ---- */

/* The path at index; raises unless it is text without zero bytes, which would end the path in C. */
const char *bind_path(lua_State *L, int index, const char *who);

/* A userdata that owns a C object and frees it when it is collected, so that an error may be raised
 * at any time. */
typedef struct bind_owner {
    void *held; /* owned; NULL: nothing */
    void (*release)(void *held);
} bind_owner;
/* Pushes an empty owner; `release` frees the object that is put into it. */
bind_owner *bind_new_owner(lua_State *L, void (*release)(void *));
/* Frees the object without waiting for the collector. */
void bind_release_owner(bind_owner *o);

/* ---- store.c ---- */

/* Pushes an owner of a store with the tensors of the table at 2, which are evaluated, and the texts
 * of the table at 3, if there is one. */
bind_owner *bind_push_store(lua_State *L);
/* Pushes a table of the store's tensors and one of its notes; frees the store. May raise. */
void bind_push_store_tables(lua_State *L, mg_store *store);

int luaopen_mgpu(lua_State *L);
int luaopen_mgpu_core(lua_State *L);

/* ---- registration: called by luaopen_mgpu_core ---- */

/* Sets the field root of the table on top: the folder that holds lua/ and models/, or nil. */
void bind_set_root(lua_State *L);

/* The functions that each file adds to mgpu.core; each list ends with {NULL, NULL}. */
extern const luaL_Reg mg_bind_tensor[], mg_bind_tensor_methods[], mg_bind_nested[],
    mg_bind_variable[], mg_bind_grad[], mg_bind_jit[], mg_bind_loop[], mg_bind_device[],
    mg_bind_memory[], mg_bind_random[], mg_bind_data[], mg_bind_io[], mg_bind_json[],
    mg_bind_store[], mg_bind_zip[], mg_bind_checkpoint[], mg_bind_h5[], mg_bind_image[],
    mg_bind_source[], mg_bind_terminal[], mg_bind_source_csv[], mg_bind_elements[],
    mg_bind_transform[], mg_bind_datasets[], mg_bind_source_files[], mg_bind_tfrecord[],
    mg_bind_library[], mg_bind_world[], mg_bind_world_values[], mg_bind_world_messages[],
    mg_bind_pattern[], mg_bind_profile[], mg_bind_server[], mg_bind_tensor_bytes[], mg_bind_visit[],
    mg_bind_process[];
/* ops.c: adds one function for each op, visible or all, to the table on top of the stack. */
void bind_open_ops(lua_State *L, bool hidden);
/* ops.c: core.op_rows, the table of ops. */
int bind_op_rows(lua_State *L);
/* Make the metatables of their userdata. For tensors and variables the table of methods is on top
 * of the stack. */
void bind_open_tensor(lua_State *L);
void bind_open_variable(lua_State *L);
void bind_open_jit(lua_State *L);
void bind_open_data(lua_State *L);
void bind_open_checkpoint(lua_State *L);
void bind_open_process(lua_State *L);
void bind_open_tfrecord(lua_State *L);
void bind_open_server(lua_State *L);
/* json.c: adds core.null and core.empty_array to the table on top of the stack. */
void bind_open_json(lua_State *L);

#endif
