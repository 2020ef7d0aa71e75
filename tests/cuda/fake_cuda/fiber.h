/* Fibers: threads of execution, each with its own stack, that hand control to one another
 * explicitly. block.c runs the threads of a CUDA block on them, since a barrier can suspend a
 * thread anywhere. */
#ifndef FAKE_CUDA_FIBER_H
#define FAKE_CUDA_FIBER_H

enum { FAKE_CUDA_STACKS = 1024 };

#ifdef __x86_64__
typedef void *fake_cuda_place; /* the stack pointer, which points to the saved registers */
#else
#include <ucontext.h>
typedef ucontext_t fake_cuda_place;
#endif

/* Saves the running fiber's place in *here and continues at *to. The call returns when another
 * fiber switches to *here. */
void fake_cuda_switch(fake_cuda_place *here, fake_cuda_place *to);

/* Prepares a fresh fiber on stack i: a switch to *place calls `start`, which must never return. */
void fake_cuda_begin(fake_cuda_place *place, int i, void (*start)(void));

/* Whether stack i has not been overrun. */
int fake_cuda_stack_is_whole(int i);

#endif
