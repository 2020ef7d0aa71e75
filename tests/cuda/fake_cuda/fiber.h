/* Stacks of their own, and going from one to another. */
#ifndef STANDIN_FIBER_H
#define STANDIN_FIBER_H

enum { STANDIN_STACKS = 1024 };

#ifdef __x86_64__
typedef void *standin_place; /* the stack pointer, below what was saved */
#else
#include <ucontext.h>
typedef ucontext_t standin_place;
#endif

/* Leaves for `to`; what is here goes on when someone leaves for `*here`. */
void standin_switch(standin_place *here, standin_place *to);

/* A place where stack number `i` begins with `start`, which must never return. */
void standin_begin(standin_place *place, int i, void (*start)(void));

/* Whether the stack has not been overrun. */
int standin_stack_is_whole(int i);

#endif
