/* Stacks of their own, and going from one to another. */
#ifndef FAKE_CUDA_FIBER_H
#define FAKE_CUDA_FIBER_H

enum { FAKE_CUDA_STACKS = 1024 };

#ifdef __x86_64__
typedef void *fake_cuda_place; /* the stack pointer, below what was saved */
#else
#include <ucontext.h>
typedef ucontext_t fake_cuda_place;
#endif

/* Leaves for `to`; what is here goes on when someone leaves for `*here`. */
void fake_cuda_switch(fake_cuda_place *here, fake_cuda_place *to);

/* A place where stack number `i` begins with `start`, which must never return. */
void fake_cuda_begin(fake_cuda_place *place, int i, void (*start)(void));

/* Whether the stack has not been overrun. */
int fake_cuda_stack_is_whole(int i);

#endif
