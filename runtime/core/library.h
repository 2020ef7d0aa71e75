/* Libraries that are opened when they are first needed. A plug-in that is not linked to them loads
 * on any machine, and can say what is missing.
 *
 * Each library is a table of the functions used: MG_LIBRARY_TABLE makes the struct from a list.
 * Names go through the library's own version macros (cuMemAlloc is cuMemAlloc_v2). CUDA's are found
 * in the folder MGPU_CUDA_LIBRARIES if that is set (and nowhere else), else where the loader looks,
 * in $CUDA_HOME/lib64, /usr/local/cuda/lib64, and the nvidia wheels of Python installations: those
 * of $VIRTUAL_ENV, of $CONDA_PREFIX, of each python3 on the PATH and of those it links to, and of
 * ~/.local. */
#ifndef MG_CORE_LIBRARY_H
#define MG_CORE_LIBRARY_H

#include "core/status.h"
#include <stddef.h>

#define MG_LIBRARY_ENTRY(function) __typeof__(function) *function;
#define MG_LIBRARY_TABLE(name, LIST)                                                               \
    typedef struct name {                                                                          \
        LIST(MG_LIBRARY_ENTRY)                                                                     \
    } name

#define MG_LIBRARY_QUOTE_(text) #text
#define MG_LIBRARY_QUOTE(text) MG_LIBRARY_QUOTE_(text)
#define MG_LIBRARY_SYMBOL(function) MG_LIBRARY_QUOTE(function),
/* The names of a list's functions: an initialiser for mg_library.symbols. */
#define MG_LIBRARY_SYMBOLS(LIST)                                                                   \
    { LIST(MG_LIBRARY_SYMBOL) NULL }

/* Defines `name`, a static mg_library that fills the table `functions`, which MG_LIBRARY_TABLE made
 * from LIST. The remaining arguments initialise .file, .what and .install. */
#define MG_LIBRARY(name, functions, LIST, ...)                                                     \
    static const char *const name##_symbols[] = MG_LIBRARY_SYMBOLS(LIST);                          \
    _Static_assert(sizeof(functions) / sizeof(void *) ==                                           \
                       sizeof name##_symbols / sizeof *name##_symbols - 1,                         \
                   "one address for each name");                                                   \
    static mg_library name = {                                                                     \
        .symbols = name##_symbols, .table = (void **)&(functions), __VA_ARGS__}

typedef struct mg_library {
    const char *file;           /* "libcudnn.so.9" */
    const char *what, *install; /* for the message: "cuDNN 9", "install libcudnn9-cuda-13" */
    const char *const *symbols; /* NULL-terminated */
    const char *beside; /* NULL, or a pattern of files in its folder that it opens by their bare
                           names and could not find alone */
    int system;         /* comes with the system: only the loader's path is searched */
    int foreign;        /* none of CUDA's: likewise, whatever MGPU_CUDA_LIBRARIES says */
    void **table;       /* receives their addresses, in this order */
    int state;          /* 0: not tried; 1: open; -1: missing */
    char problem[400];  /* why, if missing */
} mg_library;

/* Opens it at the first call; from any thread. MG_UNSUPPORTED with one sentence (what is missing,
 * where it was sought, what to install), the same one each time. */
mg_status mg_library_open(mg_library *library);

#endif
