/* Fibers: stacks and the switch between them (see fiber.h).
 *
 * All stacks are mapped at once; pages that no fiber touches cost nothing. The distance of two
 * stacks is a power of two plus some cache lines: with a plain power of two their tops would all
 * fall into the same sets of the caches. The lowest word of a stack is a canary, which shows an
 * overrun. On x86-64 the switch is a few instructions; elsewhere it is swapcontext, which makes a
 * system call each time. */
#define _GNU_SOURCE
#include "fiber.h"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = (64 << 10) + 17 * 64, CANARY = 0x5ca1ab1e };

/* The lowest address of stack i. */
static char *stack_of(int i) {
    static char *all;
    if (!all) {
        all = mmap(NULL, (size_t)STACK * FAKE_CUDA_STACKS, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) __builtin_trap();
    }
    return all + (size_t)STACK * (size_t)i;
}

static void set_canary(int i) {
    *(uint32_t *)(void *)stack_of(i) = CANARY;
}

int fake_cuda_stack_is_whole(int i) {
    return *(uint32_t *)(void *)stack_of(i) == CANARY;
}

#ifdef __x86_64__

/* Saves the callee-saved registers on the running stack, stores its stack pointer in *here, loads
 * the stack pointer of *to, and pops the registers saved there. */
__asm__(".text\n"
        ".globl fake_cuda_switch\n"
        ".type fake_cuda_switch, @function\n"
        "fake_cuda_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov (%rsi), %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".size fake_cuda_switch, . - fake_cuda_switch\n");

void fake_cuda_begin(fake_cuda_place *place, int i, void (*start)(void)) {
    /* What fake_cuda_switch pops: six registers, then `start` as the address to return to. Above it
       a zero, since `start` never returns. */
    void **top = (void **)(void *)(stack_of(i) + STACK - 64);
    set_canary(i);
    memset(top - 8, 0, 8 * sizeof *top);
    top[-2] = (void *)(uintptr_t)start;
    *place = top - 8;
}

#else

void fake_cuda_switch(fake_cuda_place *here, fake_cuda_place *to) {
    swapcontext(here, to);
}

void fake_cuda_begin(fake_cuda_place *place, int i, void (*start)(void)) {
    set_canary(i);
    getcontext(place);
    place->uc_stack.ss_sp = stack_of(i);
    place->uc_stack.ss_size = STACK;
    place->uc_link = NULL;
    makecontext(place, start, 0);
}

#endif
