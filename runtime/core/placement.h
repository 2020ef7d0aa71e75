/* Placement: where a value lies. Today one device; the other kinds are part of the type from the
 * start, so that splitting over devices adds a pass and changes no structure. */
#ifndef MG_CORE_PLACEMENT_H
#define MG_CORE_PLACEMENT_H

#include <stdint.h>

/* What makes one value of the devices' terms. */
enum mg_reduce_kind { MG_REDUCE_SUM, MG_REDUCE_MAX, MG_REDUCE_MIN };

typedef struct mg_device mg_device;

typedef enum mg_placement_kind {
    MG_PLACE_DEVICE,     /* whole, on one device */
    MG_PLACE_REPLICATED, /* whole, on every device of the list */
    MG_PLACE_SPLIT,      /* rows of `axis` dealt out over the list */
    MG_PLACE_PARTIAL     /* every device holds a term of a reduction not yet made */
} mg_placement_kind;

typedef struct mg_placement {
    mg_placement_kind kind;
    int32_t axis;      /* of a split */
    mg_device *device; /* of a single device; devices live as long as the runtime */
} mg_placement;

static inline mg_placement mg_place_on(mg_device *device) {
    return (mg_placement){.kind = MG_PLACE_DEVICE, .device = device};
}

#endif
