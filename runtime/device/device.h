/* The device interface: everything the runtime asks of a device.
 *
 * ref and null are built in; others are plug-ins `mgpu-<kind>.so` that export
 * `const mg_device_api *mg_device_plugin(void)`. */
#ifndef MG_DEVICE_DEVICE_H
#define MG_DEVICE_DEVICE_H

#include "comm/comm.h"
#include "core/placement.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "device/kernel_graph.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct mg_program mg_program;

/* Room for the name of a kind ("cuda": letters) and of a device ("cuda:63/63"). */
enum { MG_KIND_NAME = 24, MG_DEVICE_NAME = MG_KIND_NAME + 8 };

typedef struct mg_device_info { /* plain data, no context is created to fill it */
    char name[MG_DEVICE_NAME];  /* "cuda:0/1"; this and kind are filled in by mg_device_describe */
    char kind[MG_KIND_NAME];    /* "cuda" */
    char text[160];             /* "2 threads, AVX-512, oneDNN 2.6.3" */
    int64_t memory_bytes;       /* of the machine or card */
} mg_device_info;

typedef enum mg_phase {
    MG_COMPUTE,
    MG_COMMIT,
    MG_BOTH_PHASES,
    MG_PREPARE /* makes the fixed values in `kept`: only if kept_bytes is there (mg_device_api) */
} mg_phase;

typedef struct mg_run {
    struct mg_device *device; /* may be another one than it was compiled for: see shares_programs */
    const int64_t *first;     /* per step: replaces mg_step.first; NULL: mg_step.first holds */
    void *const *external;    /* one address per external value */
    void *arena;              /* mg_program_arena_bytes() bytes, 64-byte aligned */
    void *kept;               /* kept_bytes() bytes, likewise: what the last MG_PREPARE has made */
    mg_rng_state rng;
    uint64_t draws; /* draws of a run, by which rng advances before the next one */
    mg_phase phase;
    mg_comm *comm;           /* of the devices that share the rows, or NULL */
    const mg_shards *shards; /* which rows each rank has; set if there is a comm */
    int rank;                /* this device's rank in comm */
    mg_comm *world;          /* of all devices of the plan in this process; NULL if comm is */
    int world_rank;
    int n_stage;             /* devices of a stage in this process */
    int threads;             /* of the host's cores; 0: all */
    const atomic_bool *stop; /* the compute phase ends when it is set. NULL: on an interrupt */
    bool *finished; /* set when the commit phase has made all its values, even if it fails */
} mg_run;

typedef struct mg_device_team {       /* who shares a communicator */
    int n;                            /* ranks, in all processes */
    int first, here;                  /* the ranks of this process: [first, first + here) */
    const mg_comm_id *id;             /* NULL: all are here */
    struct mg_device *const *devices; /* of the ranks here */
} mg_device_team;

typedef struct mg_staging { /* a copy from host memory that is made ahead of need */
    const void *src;
    size_t bytes;
    bool (*stop)(void *context); /* polled while waiting: true ends the wait with MG_INTERRUPTED;
                                    may be NULL */
    void *context;
} mg_staging;

enum { MG_READBACKS = 2 }; /* the most pending readbacks of a device */

typedef struct mg_device_api {
    size_t size;      /* of this struct: plug-ins built against another version are refused */
    const char *kind; /* "cuda": the name of the plug-in and of its devices, lower-case letters */
    /* Kinds of a higher rank come first in mgpu.devices(), and the default device is the first that
     * exists, by rank: ref has 1, cpu 10, cuda 20. 0: never the default, and not in --list-devices
     * (null). */
    int rank;
    bool gpu;       /* "gpu:0" may mean a device of this kind */
    bool test_only; /* mgpu.devices() lists it only if called with this kind */
    bool physical;  /* ordinals are cards, which are all listed; else any ordinal may be named */
    bool shares_ordinals; /* several logical devices may share one card: "cuda:0/1" */
    bool discards_data;   /* memory is never written or read (null): the host must not use addresses
                             of data */
    mg_status (*open)(mg_device *d);
    void (*close)(mg_device *d);
    mg_status (*describe)(int ordinal, mg_device_info *info);
    int (*count)(void); /* devices of this kind that exist; logical kinds give
                           MG_MAX_DEVICES */
    /* memory: host access is only through copy_in/copy_out */
    mg_status (*alloc)(mg_device *d, size_t bytes, void **data); /* MG_OOM: memory is short */
    void (*free)(mg_device *d, void *data, size_t bytes);
    mg_status (*copy_in)(mg_device *d, void *dst, const void *src, size_t bytes);
    mg_status (*copy_out)(mg_device *d, void *dst, const void *src, size_t bytes);
    /* From memory of `from` to memory of `to`, both of this kind, perhaps the same device. Ordered
     * after all work that either device has, and before all later work. MG_UNSUPPORTED: there is no
     * direct way between the two. May be NULL. */
    mg_status (*copy_peer)(mg_device *to, void *dst, mg_device *from, const void *src,
                           size_t bytes);
    /* work */
    mg_status (*compile)(mg_device *d, const mg_kernel_graph *graph, mg_program **program);
    mg_status (*run)(mg_program *program, const mg_run *run);
    void (*release)(mg_program *program);
    size_t (*arena_bytes)(const mg_program *program);
    /* Bytes for the fixed values of a frozen plan, which MG_PREPARE makes and later runs read.
     * NULL: the kind has no such phase, and makes them in each run. */
    size_t (*kept_bytes)(const mg_program *program);
    mg_status (*sync)(mg_device *d);
    /* whether element-wise chains should be fused for it (ref: no, so that it stays the oracle) */
    bool fuses;
    bool host_memory; /* its memory is the host's: others like it may use its addresses */
    /* Makes a communicator among devices of this kind. NULL without an error: there is none for
     * these devices (only if the team has no id); NULL with an error: it failed. The function may
     * be NULL itself. */
    mg_comm *(*connect)(const mg_device_team *team);
    mg_status (*make_id)(mg_comm_id *id); /* NULL: no teams over several processes */
    /* Asynchronous devices only, else NULL. readback_begin starts to copy a byte to the host, after
     * the work enqueued so far. readback_wait waits for the oldest pending readback, of which there
     * are at most MG_READBACKS; after MG_INTERRUPTED it may be called again for the same one. */
    mg_status (*readback_begin)(mg_device *d, const void *byte);
    mg_status (*readback_wait)(mg_device *d, uint8_t *answer);
    /* its programs hold no state of a device or run: several devices of the kind may run one
     * program, also at the same time */
    bool shares_programs;
    /* stage_in allocates memory and copies into it while the device works on other things; any
     * thread may call it, and `free` frees the memory. stage_join orders later work after the copy.
     * Both NULL: plain copies are as fast. */
    mg_status (*stage_in)(mg_device *d, const mg_staging *what, void **data);
    mg_status (*stage_join)(mg_device *d, void *data);
} mg_device_api;

struct mg_device { /* one per name, made on first use, lives as long as the process */
    const mg_device_api *api;
    int ordinal, logical;      /* several devices may share a GPU: cuda:ordinal/logical */
    char name[MG_DEVICE_NAME]; /* "cpu:0", "cuda:0/1" */
    void *state;               /* private data of the device kind */
    atomic_llong used, peak;
    int64_t limit;                  /* MGPU_MEMORY; INT64_MAX if none */
    int threads;                    /* of the host's cores, in the plan being made; 0: all */
    struct mg_async_guards *guards; /* owned: made by graph/async_guards.c, or NULL ... */
    void (*free_guards)(struct mg_async_guards *guards); /* ... and the function that frees them */
    struct mg_device *judge;  /* whose guards tell whether this device's last run counts; NULL: its
                                 own */
    struct mg_worker *worker; /* its thread, or NULL until it is needed */
    _Atomic(const char *) at; /* name of the op that it runs or ran last */
    atomic_uint progress;     /* counts the ops that its thread has started, for the watchdog */
    atomic_bool lost;         /* its thread did not return from a job: it gets no further jobs */
    pthread_mutex_t turn;     /* held by the thread that runs a plan: protects the arena and the
                                 device's private data. Recursive */
    void *arena;              /* shared by all plans */
    size_t arena_bytes;
    struct mg_device *next;
};

/* "cpu", "cpu:1", "gpu:0", "/device:GPU:0" ... Opens it. NULL: unknown name (nearest named),
 * missing plug-in or library (what to install), or lost. */
mg_device *mg_device_find(const char *name);
/* Describes a device without opening it; errors as above. */
mg_status mg_device_describe(const char *name, mg_device_info *info);
static inline bool mg_device_is_lost(const mg_device *d) {
    return atomic_load(&d->lost);
}
/* MG_DEVICE, saying what to do, if d is lost; MG_UNSUPPORTED in a forked process. */
mg_status mg_device_check(const mg_device *d);
/* Whether d's memory cannot be accessed: d is lost and its memory is not host memory, so a call
 * could wait for ever. */
static inline bool mg_device_out_of_reach(const mg_device *d) {
    return mg_device_is_lost(d) && !d->api->host_memory;
}
/* Whether the host can read and write the data of tensors on such devices by their addresses. */
static inline bool mg_device_kind_is_host_visible(const mg_device_api *api) {
    return api->host_memory && !api->discards_data;
}
/* The device new tensors lie on: the one that was set, or else the first device of the
 * highest-ranked kind that has any device. */
mg_device *mg_device_default(void);
void mg_device_set_default(mg_device *d);
/* All devices opened so far: for memory reports and shutdown. */
mg_device *mg_device_first(void);
/* Closes every device; for clean leak reports at exit. */
void mg_devices_close(void);
/* Memory within the device's limit, counted in used and peak; MG_OOM names asked, used, limit. */
mg_status mg_device_alloc(mg_device *d, size_t bytes, void **data);
void mg_device_free(mg_device *d, void *data, size_t bytes);
/* Copies from the memory of one device to the memory of another or the same one, directly if the
 * kind can. The source may be freed after it returns. */
mg_status mg_device_copy(mg_device *to, void *dst, mg_device *from, const void *src, size_t bytes);
/* Copies to the host like copy_out, but an interrupt does not end the wait and stays pending. */
mg_status mg_device_read_through(mg_device *d, void *dst, const void *src, size_t bytes);
/* The fastest communicator among these devices, rank i being devices[i]; NULL on failure. */
mg_comm *mg_device_connect(mg_device *const *devices, int n);
/* The same among the devices of all ranks of the world, of which here[r] belong to rank r: those of
 * this rank are given. Every rank calls it at the same point. */
mg_comm *mg_device_connect_joint(mg_device *const *devices, const int64_t *here);
/* A communicator over several processes, each with some of the ranks; all devices are of one kind.
 * Returns when all processes have joined. NULL on failure: MG_UNSUPPORTED if the kind has none. */
mg_comm *mg_device_join(const mg_device_team *team);
/* The id of a new team of such devices: one process makes it and sends it to the others. */
mg_status mg_device_make_id(const mg_device *d, mg_comm_id *id);
/* A block at least this large, kept for all plans of d. */
mg_status mg_device_arena(mg_device *d, size_t bytes, void **arena);

#endif
