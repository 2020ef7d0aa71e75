/* NVRTC: the library, the headers that sources may include, the options, compiling.
 *
 * The plug-in carries the headers as text, because a machine that runs it need not have our source
 * tree. */
#include "device/cuda/codegen/codegen.h"
#include "core/alloc.h"
#include "core/library.h"
#include <nvrtc.h>
#include <stdio.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(nvrtcVersion)                                                                                \
    X(nvrtcGetNumSupportedArchs)                                                                   \
    X(nvrtcGetSupportedArchs)                                                                      \
    X(nvrtcCreateProgram)                                                                          \
    X(nvrtcDestroyProgram)                                                                         \
    X(nvrtcCompileProgram)                                                                         \
    X(nvrtcGetPTXSize)                                                                             \
    X(nvrtcGetPTX)                                                                                 \
    X(nvrtcGetCUBINSize)                                                                           \
    X(nvrtcGetCUBIN)                                                                               \
    X(nvrtcGetProgramLogSize)                                                                      \
    X(nvrtcGetProgramLog)                                                                          \
    X(nvrtcGetErrorString)
MG_LIBRARY_TABLE(functions, FUNCTIONS);

static functions rtc;
MG_LIBRARY(library, rtc, FUNCTIONS, .file = "libnvrtc.so.13", .what = "NVRTC 13",
           .install = "install cuda-nvrtc-13-0, or pip's nvidia-cuda-nvrtc",
           .beside = "libnvrtc-builtins.so.13.*");

/* ---- the headers that generated sources include, carried as text ---- */

/* Defines the symbol `name` as the contents of a file, followed by NUL. */
#define EMBED(name, file)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".globl " #name "\n"                                                                   \
            ".balign 16\n" #name ":\n"                                                             \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".previous\n")

EMBED(mg_cuda_kernel_h, "runtime/device/cuda/kernels/kernel.h");
EMBED(mg_cuda_params_h, "runtime/device/cuda/kernels/params.h");
EMBED(mg_cuda_elements_h, "runtime/device/cuda/kernels/elements.h");
EMBED(mg_cuda_fused_h, "runtime/device/cuda/kernels/fused.h");
EMBED(mg_cuda_fused_sums_h, "runtime/device/cuda/kernels/fused_sums.h");
EMBED(mg_cuda_fused_pool_h, "runtime/device/cuda/kernels/fused_pool.h");
EMBED(mg_cuda_reduce_h, "runtime/device/cuda/kernels/reduce.h");
EMBED(mg_cuda_scan_h, "runtime/device/cuda/kernels/scan.h");
EMBED(mg_cuda_elementwise_double_h, "runtime/ops/elementwise_double.h");
EMBED(mg_cuda_elementwise_float_h, "runtime/ops/elementwise_float.h");

extern const char mg_cuda_kernel_h[], mg_cuda_params_h[], mg_cuda_elements_h[], mg_cuda_fused_h[],
    mg_cuda_fused_sums_h[], mg_cuda_fused_pool_h[], mg_cuda_reduce_h[], mg_cuda_scan_h[],
    mg_cuda_elementwise_double_h[], mg_cuda_elementwise_float_h[];

/* The path under which sources include the headers. */
#define FOLDER "device/cuda/kernels/"
static const char *const header_names[] = {
    FOLDER "kernel.h",          FOLDER "params.h",        FOLDER "elements.h", FOLDER "fused.h",
    FOLDER "fused_sums.h",      FOLDER "fused_pool.h",    FOLDER "reduce.h",   FOLDER "scan.h",
    "ops/elementwise_double.h", "ops/elementwise_float.h"};
static const char *const header_texts[] = {mg_cuda_kernel_h,
                                           mg_cuda_params_h,
                                           mg_cuda_elements_h,
                                           mg_cuda_fused_h,
                                           mg_cuda_fused_sums_h,
                                           mg_cuda_fused_pool_h,
                                           mg_cuda_reduce_h,
                                           mg_cuda_scan_h,
                                           mg_cuda_elementwise_double_h,
                                           mg_cuda_elementwise_float_h};
enum { N_HEADERS = sizeof header_names / sizeof *header_names };
_Static_assert(N_HEADERS == sizeof header_texts / sizeof *header_texts, "a text for each name");

/* NVRTC loads its builtins library itself, from the folder in which it lies (.beside). */
mg_status mg_nvrtc_open(char version[16]) {
    int major = 0, minor = 0;
    MG_TRY(mg_library_open(&library));
    rtc.nvrtcVersion(&major, &minor);
    snprintf(version, 16, "%d.%d", major, minor);
    return MG_OK;
}

/* ---- options ---- */

/* Writes the option --gpu-architecture: the wanted architecture, as machine code; or, if the
 * library does not know it, the newest older one, as PTX. Returns whether the library knows the
 * wanted architecture. */
static int choose_architecture(int wanted, char *option, size_t room) {
    int known[128], n = 0, best = 0;
    if (rtc.nvrtcGetNumSupportedArchs(&n) != NVRTC_SUCCESS || n < 0 || n > 128) n = 0;
    if (n > 0 && rtc.nvrtcGetSupportedArchs(known) != NVRTC_SUCCESS) n = 0;
    for (int i = 0; i < n; i++)
        if (known[i] <= wanted && known[i] > best) best = known[i];
    const int own = best == wanted;
    snprintf(option, room, "--gpu-architecture=%s_%d", own ? "sm" : "compute", best ? best : 80);
    return own;
}

/* Without contraction to FMA (--fmad=false) a fused group gives the same bits as its ops one by
 * one, and x - x is 0 even if x is a product. It costs no time, because these kernels are
 * memory-bound. */
typedef struct options {
    char architecture[64];
    const char *list[5];
    int own; /* the architecture is the GPU's own: the result is machine code */
} options;
enum { N_OPTIONS = sizeof((options *)0)->list / sizeof(char *) };

/* Only the architecture differs between kernels. */
static void set_options(options *o, int major, int minor) {
    o->own = choose_architecture(10 * major + minor, o->architecture, sizeof o->architecture);
    o->list[0] = o->architecture;
    o->list[1] = "--std=c++17";
    o->list[2] = "-default-device";     /* functions without a mark are __device__ */
    o->list[3] = "--fmad=false";        /* see above */
    o->list[4] = "--diag-suppress=177"; /* functions of a header that a kernel does not use */
}

/* The key contains only a hash of the headers, because they are part of the plug-in and seldom
 * change. */
mg_status mg_nvrtc_key(mg_string_buffer *key, const char *name, const char *source, int major,
                       int minor) {
    char version[16];
    options o;
    uint64_t headers = 0;
    MG_TRY(mg_nvrtc_open(version));
    set_options(&o, major, minor);
    for (int i = 0; i < N_HEADERS; i++)
        headers = mg_cuda_hash(headers, header_texts[i], strlen(header_texts[i]) + 1);
    mg_string_buffer_add(key, "%s by NVRTC %s", name, version);
    for (int i = 0; i < N_OPTIONS; i++) mg_string_buffer_add(key, " %s", o.list[i]);
    mg_string_buffer_add(key, " with %llx\n%s", (unsigned long long)headers, source);
    return mg_string_buffer_status(key);
}

/* ---- compiling ---- */

/* Fails with the compiler's messages. */
static mg_status refuse(nvrtcProgram program, nvrtcResult result, const char *name) {
    size_t n = 0;
    char *text = NULL;
    if (program && rtc.nvrtcGetProgramLogSize(program, &n) == NVRTC_SUCCESS && n > 1)
        text = mg_alloc(n);
    if (text && rtc.nvrtcGetProgramLog(program, text) != NVRTC_SUCCESS) text[0] = 0;
    mg_fail(MG_INTERNAL, "the source of kernel %s does not compile: %s: %s", name,
            rtc.nvrtcGetErrorString(result), text ? text : "");
    mg_free(text);
    return MG_INTERNAL;
}

/* Copies the compiler's result, machine code or PTX, to a block from mg_alloc. */
static mg_status get_image(nvrtcProgram program, int machine_code, const char *name, void **image,
                           size_t *bytes) {
    nvrtcResult r =
        machine_code ? rtc.nvrtcGetCUBINSize(program, bytes) : rtc.nvrtcGetPTXSize(program, bytes);
    if (r != NVRTC_SUCCESS) return refuse(program, r, name);
    *image = mg_alloc(*bytes);
    if (!*image) return MG_OOM;
    r = machine_code ? rtc.nvrtcGetCUBIN(program, *image) : rtc.nvrtcGetPTX(program, *image);
    if (r == NVRTC_SUCCESS) return MG_OK;
    mg_free(*image);
    *image = NULL;
    return refuse(program, r, name);
}

/* A program object lives for one compilation. */
mg_status mg_nvrtc_compile(const char *name, const char *source, int major, int minor, void **image,
                           size_t *bytes) {
    char version[16], file[128];
    nvrtcProgram program = NULL;
    options o;
    MG_TRY(mg_nvrtc_open(version));
    set_options(&o, major, minor);
    snprintf(file, sizeof file, "%s.cu", name);
    nvrtcResult r =
        rtc.nvrtcCreateProgram(&program, source, file, N_HEADERS, header_texts, header_names);
    if (r == NVRTC_SUCCESS) r = rtc.nvrtcCompileProgram(program, N_OPTIONS, o.list);
    const mg_status status = r == NVRTC_SUCCESS ? get_image(program, o.own, name, image, bytes)
                                                : refuse(program, r, name);
    if (program) rtc.nvrtcDestroyProgram(&program);
    return status;
}
