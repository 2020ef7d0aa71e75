/* A model as a library: what the C file that `mgpulua --pack --c` writes calls. The names are
 * hidden in the library that is made of both. */
#ifndef MG_PACK_EMBED_H
#define MG_PACK_EMBED_H

#include <stddef.h>

/* One input or output: rows of `size` elements of this dtype. */
typedef struct mgpu_model_array {
    const char *dtype;
    int rank; /* of one row */
    const long long *shape;
} mgpu_model_array;

typedef struct mgpu_model {
    const char *name;    /* of the library, for messages */
    const void *archive; /* pack/archive.h */
    const size_t *size;  /* of the archive, in bytes */
    int n_inputs, n_outputs;
    const mgpu_model_array *inputs, *outputs;
} mgpu_model;

/* Predicts `rows` rows: in[i] and out[i] point to rows * size elements of the i-th input and
 * output. Returns 0, or a number of mg_status; out is then unspecified. Calls take turns. */
int mgpu_model_predict(const mgpu_model *model, long rows, const void *const *in, void *const *out);
/* Does what the first prediction would do before it computes. */
int mgpu_model_open(const mgpu_model *model);
/* The message of this thread's last failure; "" if there was none. */
const char *mgpu_model_error(void);
/* Frees all that predictions have left; the next one opens the model again. */
void mgpu_model_close(void);

#endif
