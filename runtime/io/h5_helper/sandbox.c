/* The sandbox of mgpu-h5: see sandbox_enter. */
#include "io/h5_helper/helper.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || defined MG_ASAN
enum { SANITIZED = 1 }; /* sanitizers need terabytes of address space and further system calls */
#else
enum { SANITIZED = 0 };
#endif

#if defined __x86_64__
#define MY_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define MY_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static void limit(__rlimit_resource_t what, size_t n) {
    setrlimit(what, &(struct rlimit){n, n});
}

/* SIGXCPU, which tells the caller why, comes at the soft limit, SIGKILL at the hard one. Lower
 * limits of the caller hold. */
static void limit_time(rlim_t seconds) {
    struct rlimit r;
    if (getrlimit(RLIMIT_CPU, &r) != 0) return;
    if (seconds < r.rlim_cur) r.rlim_cur = seconds;
    if (r.rlim_cur + 1 < r.rlim_max) r.rlim_max = r.rlim_cur + 1;
    setrlimit(RLIMIT_CPU, &r);
}

/* The system calls of malloc, libhdf5 on a file in memory, write and exit. */
static const long allowed[] = {
    SYS_read,         SYS_write,      SYS_brk,     SYS_mmap,         SYS_munmap,
    SYS_mremap,       SYS_mprotect,   SYS_madvise, SYS_futex,        SYS_clock_gettime,
    SYS_gettimeofday, SYS_getrusage,  SYS_getpid,  SYS_rt_sigreturn, SYS_rt_sigprocmask,
    SYS_exit,         SYS_exit_group,
};
enum { N_ALLOWED = sizeof allowed / sizeof allowed[0] };

/* Every other call fails with EPERM. On kernels without filters, only the limits protect. */
static void filter_calls(void) {
#ifdef MY_ARCHITECTURE
    struct sock_filter program[N_ALLOWED + 6];
    unsigned short n = 0;
    program[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MY_ARCHITECTURE, 1, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);
    program[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_ALLOWED; i++)
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
                                                    (unsigned char)(N_ALLOWED - i), 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {.len = n, .filter = program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
#endif
}

void sandbox_enter(size_t size) {
    const size_t records = MG_H5_FREE_BYTES + MG_H5_MAX_RATIO * size;
    limit(RLIMIT_FSIZE, records);
    limit_time(mg_h5_seconds(size));
    limit(RLIMIT_NOFILE, 3);
    limit(RLIMIT_CORE, 0);
    if (SANITIZED) return;
    limit(RLIMIT_AS, size + records + ((size_t)1 << 30));
    filter_calls();
}
