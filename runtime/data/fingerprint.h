/* Fingerprints of data, by which processes find out whether they have the same.
 *
 * Of large data only samples are read, so a fingerprint takes about a millisecond; a few rows that
 * differ between two samples go unnoticed, but not data in another order, of another scale, or
 * cut out of a larger set at another place. */
#ifndef MG_DATA_FINGERPRINT_H
#define MG_DATA_FINGERPRINT_H

#include "core/tensor.h"
#include "data/source.h"

/* Of the dtype, the shape and the values: up to 4 MB all of them, else 4 MB in blocks that are
 * spread evenly. The tensor is evaluated. MG_OOM, MG_DEVICE. */
mg_status mg_fingerprint_tensor(const mg_tensor *t, uint64_t *hash);
/* Of the number of rows, the fields and a few of the rows. Rows that cannot be read count as rows
 * of zeros, since whoever trains on them gets the error. MG_INTERRUPTED. */
mg_status mg_fingerprint_source(mg_source *s, uint64_t *hash);

#endif
