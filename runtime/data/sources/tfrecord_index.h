/* An index of the records of a set of TFRecord files: 16 bytes of memory per record.
 *
 * The index is made by reading the records' lengths, whose checksums are verified; the checksum of
 * a record's bytes is verified whenever it is read. */
#ifndef MG_DATA_SOURCES_TFRECORD_INDEX_H
#define MG_DATA_SOURCES_TFRECORD_INDEX_H

#include "io/file_set.h"

typedef struct mg_record_place {
    int64_t
        position; /* of the record in its file; its contents begin MG_TFRECORD_HEAD bytes later */
    uint32_t bytes;
    int32_t file;
} mg_record_place;

typedef struct mg_record_index {
    mg_record_place *place; /* owned, for mg_free */
    int n, capacity;
    int64_t skipped; /* records left out */
    int64_t
        lost_bytes; /* bytes of files after the positions at which they cannot be read further */
} mg_record_index;

/* Adds the records of all files to an empty index.
 *
 * skip_bad: reads all records, and leaves out those that do not match their checksum. The next
 * record is found by the length of the one before it, so after a length that does not match its
 * checksum the rest of the file is lost. Both are counted, and logged by file.
 *
 * MG_DATA: a length is damaged, a file is truncated, or with skip_bad no record is left of files
 * that are not empty; MG_UNSUPPORTED: a record of 2 GiB, or a billion records; MG_IO, MG_OOM,
 * MG_INTERRUPTED. */
mg_status mg_record_index_build(mg_file_set *files, bool skip_bad, mg_record_index *index);

#endif
