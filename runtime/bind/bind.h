/* The Lua bindings: what their files share.
 *
 * Ownership: a tensor that a binding function makes is put into a userdata (made empty first)
 * before anything can raise, so no error passes an owned resource. Arguments that are not tensors
 * yet (numbers, tables, variables) are replaced on the stack by tensors, which anchors them too. */
#ifndef MG_BIND_BIND_H
#define MG_BIND_BIND_H

#include "core/status.h"
#include "core/tensor.h"
#include "core/variable.h"
#include "ops/op.h"
#include <lauxlib.h>
#include <lua.h>

#define BIND_TENSOR "mgpu.tensor"
#define BIND_VARIABLE "mgpu.variable"

/* ---- bind.c: errors ---- */

/* Raises the stored error as a string, the user's line first. Does not return. */
int bind_raise(lua_State *L) __attribute__((noreturn));
/* Stores and raises. */
int bind_fail(lua_State *L, mg_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* Raises if status is not MG_OK. */
void bind_check(lua_State *L, mg_status status);
/* Raises unless the argument has this Lua type: "grad: argument 1 must be a function, got nil". */
void bind_want(lua_State *L, int index, int type, const char *who);
/* " (did you mean \"NAME\"?)" for the name nearest to `given`, or "" if none is near. May push the
 * string: for the arguments of bind_fail. */
const char *bind_did_you_mean(lua_State *L, const char *given, const char *const *names, int n);
/* Raises unless the value at index (an absolute one) is a table with none but these n names. */
void bind_check_options(lua_State *L, int index, const char *who, const char *const *known, int n);
/* Raises "interrupted" after Ctrl-C. Every entry calls it. */
void bind_poll(lua_State *L);
/* Notes the user's line in the tensors made from here on, if plans want to show it. */
void bind_note_line(lua_State *L);
/* Adds functions to the table on top of the stack. */
void bind_register(lua_State *L, const luaL_Reg *functions);

/* ---- tensor.c ---- */

/* Pushes an empty tensor userdata; fill *place at once. */
mg_tensor **bind_new_tensor(lua_State *L);
/* Fills the userdata on top of the stack with an owned tensor, or raises if it is NULL. */
void bind_fill(lua_State *L, mg_tensor **place, mg_tensor *owned);
/* The tensor at index, or NULL if it is something else. Raises if it was freed. */
mg_tensor *bind_to_tensor(lua_State *L, int index);
/* The same; NULL also for one that was freed. */
mg_tensor *bind_peek_tensor(lua_State *L, int index);
/* Replaces what stands at index (variable, number, boolean, nested table) by a tensor userdata.
 * Numbers adopt the dtype of `like` (NULL: floatx). Borrowed. */
mg_tensor *bind_take_tensor(lua_State *L, int index, const mg_tensor *like, const char *who);
mg_variable *bind_to_variable(lua_State *L, int index);
/* The current value as ops read it: a floating one in the dtype of core.autocast. Owned; NULL on
 * failure. */
mg_tensor *bind_read_variable(mg_variable *v);
/* Evaluates, with one full collection and a second try if memory is short. */
void bind_eval(lua_State *L, mg_tensor *const *t, int n);
mg_dtype bind_floatx(void);

/* The dtype that the string at index names; -1 for nothing or nil. Raises for anything else. */
int bind_dtype_option(lua_State *L, int index, const char *who);

/* ---- nested.c ---- */

/* The number of entries of the array at index (an absolute one); -1 if it has holes or names:
 * `fault` then says which. */
int64_t bind_array_length(lua_State *L, int index, char *fault, size_t size);
/* Pushes a tensor made from the nested table at index (an absolute one). dtype -1: bool if all are
 * booleans, else floatx. Borrowed. */
mg_tensor *bind_from_table(lua_State *L, int index, int dtype, mg_device *device, const char *who);

/* ---- memory.c ---- */

/* Tells the collector that bytes off the Lua heap are about to be taken. */
void bind_account(lua_State *L, size_t bytes);
/* Inside mgpu.tidy: notes the tensor userdata on top of the stack. */
void bind_note_made(lua_State *L);

/* The function lists of the other files; each ends with {NULL, NULL}. */
extern const luaL_Reg mg_bind_tensor[], mg_bind_tensor_methods[], mg_bind_nested[],
    mg_bind_variable[], mg_bind_grad[], mg_bind_jit[], mg_bind_device[], mg_bind_memory[],
    mg_bind_random[], mg_bind_data[], mg_bind_io[];
/* ops.c: fills the table on top of the stack with one function an op. */
void bind_open_ops(lua_State *L, bool hidden);
int bind_op_rows(lua_State *L);
/* tensor.c, jit.c: make their metatables; the methods table of tensors is on top of the stack. */
void bind_open_tensor(lua_State *L);
void bind_open_variable(lua_State *L);
void bind_open_jit(lua_State *L);
void bind_open_data(lua_State *L);
/* io.c: adds core.null and core.empty_array to the table on top of the stack. */
void bind_open_io(lua_State *L);

#endif
