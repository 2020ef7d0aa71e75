/* cuDNN's execution plans: finding, saving and running them.
 *
 * An engine configuration is an algorithm with its settings; an execution plan is a configuration
 * compiled for a graph. cuDNN's heuristics list configurations, best first. We check the notes of
 * each (about its numerical and general behaviour) and make plans from those that precision and
 * determinism allow. */
#include "device/cuda/cudnn/conv_plan.h"
#include "core/alloc.h"
#include "core/precision.h"

typedef cudnnBackendDescriptor_t descriptor;

enum { MOST_ENGINES = 64 }; /* configurations asked of the heuristics */

/* *d is NULL after an error. */
static cudnnStatus_t make_descriptor(cudnnBackendDescriptorType_t type, descriptor *d) {
    *d = NULL;
    return mg_dnn.cudnnBackendCreateDescriptor(type, d);
}

/* Destroys it if there is one. */
static void drop(descriptor *d) {
    if (*d) mg_dnn.cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

static cudnnStatus_t set(descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    return mg_dnn.cudnnBackendSetAttribute(d, name, type, n, values);
}

static cudnnStatus_t get(descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most, int64_t *n, void *values) {
    return mg_dnn.cudnnBackendGetAttribute(d, name, type, most, n, values);
}

/* Returns from the calling function with the status of a call that failed. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudnnStatus_t try_ = (call);                                                         \
        if (try_ != CUDNN_STATUS_SUCCESS) return try_;                                             \
    } while (0)

/* ---- engine configurations ---- */

typedef struct engines {
    descriptor at[MOST_ENGINES]; /* owned, unless a plan took it over and left NULL */
    int64_t n;
} engines;

/* cuDNN fills in configurations that the caller has made; e->n is the number of those it used. */
static cudnnStatus_t ask_heuristics(descriptor heuristics, const mg_dnn_target *target,
                                    const mg_dnn_graph *g, cudnnBackendHeurMode_t mode,
                                    engines *e) {
    TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &g->graph));
    TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (target->properties)
        TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &target->properties));
    TRY(mg_dnn.cudnnBackendFinalize(heuristics));
    for (int i = 0; i < MOST_ENGINES; i++)
        TRY(make_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &e->at[i]));
    return get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               MOST_ENGINES, &e->n, e->at);
}

/* Finds configurations for the graph by one mode of the heuristics. The caller drops all of
 * e->at. */
static cudnnStatus_t find_engines(const mg_dnn_target *target, const mg_dnn_graph *g,
                                  cudnnBackendHeurMode_t mode, engines *e) {
    descriptor heuristics;
    *e = (engines){0};
    cudnnStatus_t status = make_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);
    if (status == CUDNN_STATUS_SUCCESS) status = ask_heuristics(heuristics, target, g, mode, e);
    drop(&heuristics);
    if (status != CUDNN_STATUS_SUCCESS) e->n = 0;
    if (e->n > MOST_ENGINES) e->n = MOST_ENGINES;
    return status;
}

/* ---- notes: cuDNN's properties of an engine ---- */

typedef struct engine_notes { /* true: the engine has this note */
    bool numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT], behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
} engine_notes;

/* Notes newer than our headers are skipped. */
static cudnnStatus_t read_notes(descriptor engine, engine_notes *c) {
    cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    TRY(get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, numerical));
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if ((int)numerical[i] < CUDNN_NUMERICAL_NOTE_TYPE_COUNT) c->numerical[numerical[i]] = true;
    n = 0;
    TRY(get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
            CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, behaviour));
    for (int64_t i = 0; i < n && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        if ((int)behaviour[i] < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT) c->behaviour[behaviour[i]] = true;
    return CUDNN_STATUS_SUCCESS;
}

/* The notes of a configuration's engine. */
static cudnnStatus_t read_config_notes(descriptor config, engine_notes *c) {
    descriptor engine;
    int64_t n = 0;
    *c = (engine_notes){0};
    TRY(make_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    cudnnStatus_t status =
        get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (status == CUDNN_STATUS_SUCCESS) status = read_notes(engine, c);
    drop(&engine);
    return status;
}

/* Whether an engine may be used with the current precision and determinism. "highest" precision
 * rules out algorithms that lose digits (Winograd, FFT, reduced reductions) and, for float32,
 * TF32. */
static bool is_allowed(const engine_notes *c, mg_dtype dtype) {
    const bool *is = c->numerical;
    if (mg_deterministic() && is[CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC]) return false;
    if (mg_precision_fast()) return true;
    if (is[CUDNN_NUMERICAL_NOTE_WINOGRAD] || is[CUDNN_NUMERICAL_NOTE_FFT] ||
        is[CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION])
        return false;
    return dtype != MG_F32 ||
           !(is[CUDNN_NUMERICAL_NOTE_TENSOR_CORE] || is[CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS]);
}

/* ---- plans ---- */

/* Compiles the plan, and asks for its workspace. */
static cudnnStatus_t finish_plan(mg_dnn_plan *p) {
    int64_t n = 0, bytes = 0;
    TRY(mg_dnn.cudnnBackendFinalize(p->plan));
    TRY(get(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    p->workspace = (size_t)bytes;
    return CUDNN_STATUS_SUCCESS;
}

/* Makes a plan of a configuration: for a handle's GPU, or for a GPU that is only described. */
static cudnnStatus_t make_plan(mg_dnn_plan *p, const mg_dnn_target *target, descriptor config) {
    TRY(make_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
    if (target->handle)
        TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle));
    else
        TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &target->properties));
    TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &config));
    return finish_plan(p);
}

/* Appends plans of these configurations, up to `most`. Without `reluctant`, plans that compile at
 * run time or need a very large workspace are left out. Returns the status of the last attempt. */
static cudnnStatus_t add_plans(const mg_dnn_target *target, engines *e, mg_dtype dtype,
                               bool reluctant, int most, mg_dnn_plan *plans, int *n) {
    cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
    for (int64_t i = 0; i < e->n && *n < most; i++) {
        mg_dnn_plan *p = &plans[*n];
        engine_notes c;
        *p = (mg_dnn_plan){0};
        if (!e->at[i] || read_config_notes(e->at[i], &c) != CUDNN_STATUS_SUCCESS ||
            !is_allowed(&c, dtype))
            continue;
        if (c.behaviour[CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION] && !reluctant) continue;
        last = make_plan(p, target, e->at[i]);
        if (last == CUDNN_STATUS_SUCCESS && (reluctant || p->workspace <= MG_DNN_MUCH_WORKSPACE)) {
            p->engine = e->at[i];
            e->at[i] = NULL;
            ++*n;
        } else {
            drop(&p->plan);
        }
    }
    return last;
}

/* Up to four rounds, until one gives plans: the heuristics and then cuDNN's fallback list, first
 * without and then with the reluctant plans. */
mg_status mg_dnn_plans(const mg_dnn_target *target, const mg_dnn_graph *g, mg_dtype dtype, int most,
                       mg_dnn_plan *plans, int *n) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
    *n = 0;
    for (int round = 0; round < 4 && *n == 0; round++) {
        const bool reluctant = round >= 2;
        engines e;
        const cudnnStatus_t status = find_engines(target, g, modes[round % 2], &e);
        last = status != CUDNN_STATUS_SUCCESS
                   ? status
                   : add_plans(target, &e, dtype, reluctant, reluctant ? 1 : most, plans, n);
        for (int i = 0; i < MOST_ENGINES; i++) drop(&e.at[i]);
    }
    if (*n) return MG_OK;
    return mg_dnn_check(last, "find an algorithm");
}

/* The plan refers to its engine, so the plan is destroyed first. */
void mg_dnn_plan_drop(mg_dnn_plan *p) {
    drop(&p->plan);
    drop(&p->engine);
}

/* ---- plans as text, for the disk cache ---- */

/* A request of 0 bytes returns the length. */
char *mg_dnn_plan_write(const mg_dnn_plan *p, size_t *bytes) {
    const cudnnBackendAttributeName_t json = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t n = 0;
    if (get(p->plan, json, CUDNN_TYPE_CHAR, 0, &n, NULL) != CUDNN_STATUS_SUCCESS || n <= 0)
        return NULL;
    char *text = mg_alloc((size_t)n);
    if (text && get(p->plan, json, CUDNN_TYPE_CHAR, n, &n, text) != CUDNN_STATUS_SUCCESS) {
        mg_free(text);
        return NULL;
    }
    *bytes = (size_t)n;
    return text;
}

/* cuDNN checks that the text fits the GPU and its own version. */
static cudnnStatus_t read_plan(mg_dnn_plan *p, cudnnHandle_t handle, const char *text,
                               size_t bytes) {
    TRY(make_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
    TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)bytes,
            text));
    return finish_plan(p);
}

mg_status mg_dnn_plan_read(mg_dnn_plan *p, cudnnHandle_t handle, const char *text, size_t bytes) {
    *p = (mg_dnn_plan){0};
    const cudnnStatus_t status = read_plan(p, handle, text, bytes);
    if (status != CUDNN_STATUS_SUCCESS) mg_dnn_plan_drop(p);
    return mg_dnn_check(status, "read a plan");
}

/* ---- running ---- */

/* A variant pack tells a plan where its tensors and its workspace lie. */
static cudnnStatus_t fill_pack(descriptor d, int n, const int64_t *numbers, void *const *addresses,
                               void *workspace) {
    TRY(set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, numbers));
    TRY(set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, addresses));
    TRY(set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    return mg_dnn.cudnnBackendFinalize(d);
}

/* A variant pack per run: making one takes cuDNN a few microseconds, and a captured graph does
 * not need it any more. */
mg_status mg_dnn_plan_run(const mg_dnn_plan *p, cudnnHandle_t handle, int n, const int64_t *numbers,
                          void *const *addresses, void *workspace) {
    descriptor d;
    cudnnStatus_t status = make_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d);
    if (status == CUDNN_STATUS_SUCCESS) status = fill_pack(d, n, numbers, addresses, workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = mg_dnn.cudnnBackendExecute(handle, p->plan, d);
    drop(&d);
    return mg_dnn_check(status, "run a convolution");
}
