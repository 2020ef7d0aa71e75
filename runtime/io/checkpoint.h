/* Checkpoints on disk: folders inside a folder, each with the state of a training run at one
 * moment.
 *
 *     DIR/checkpoint-000012/state.safetensors   the state: named tensors and notes
 *     DIR/checkpoint-000012/manifest            sizes and XXH3 hashes of its header and its data
 *     DIR/latest                                the name of the newest checkpoint
 *
 * The last two end with a hash of their own text. Manifests of version 1 have one size and hash, of
 * the whole file.
 *
 * Writing is atomic: a checkpoint is written under the name checkpoint-000012.part, synced,
 * renamed, and then named in `latest`, so that a process that dies at any moment leaves only whole
 * checkpoints. The numbers alone tell which is the newest: `latest` is for people and scripts, and
 * may be missing.
 *
 * A checkpoint that is no longer needed is renamed, too: it becomes checkpoint-000009.part, the
 * *spare* checkpoint. Once that is synced, the next save writes over its state, which is faster
 * than a new file, and renames it to checkpoint-000012. A part is locked while a process uses it;
 * parts without a lock are those of processes that died. Only one process at a time should write to
 * a folder: if two do, saves fail, but no checkpoint is damaged. */
#ifndef MG_IO_CHECKPOINT_H
#define MG_IO_CHECKPOINT_H

#include "io/store.h"
#include <stdbool.h>

/* ---- reading ---- */

/* The numbers of the checkpoints in the folder, the newest first; *n is 0 if the folder is missing.
 * Owned (mg_free). NULL: MG_IO, MG_OOM. */
int64_t *mg_checkpoint_list(const char *folder, size_t *n);
/* Compares all files with the manifest. MG_DATA: damaged, the message says what; MG_IO. */
mg_status mg_checkpoint_verify(const char *folder, int64_t number);
/* Verifies and reads a checkpoint. Owned; NULL: as above, or MG_OOM. */
mg_store *mg_checkpoint_load(const char *folder, int64_t number);
/* The checkpoint that `latest` names; -1 if there is no such file. MG_DATA: the file is damaged. */
mg_status mg_checkpoint_latest(const char *folder, int64_t *number);

/* ---- writing ---- */

/* A folder that has the ending .part. */
typedef struct mg_checkpoint_part {
    int64_t number;
    mg_file *lock; /* owned; NULL: there is no such folder */
} mg_checkpoint_part;

/* Writes a checkpoint, then `latest`, then removes all checkpoints but the newest `keep`. *spare:
 * first {0}; afterwards an old checkpoint that was kept, and that the next call writes over.
 * *saved: the checkpoint is complete, even if a later operation failed. MG_IO, MG_OOM, and the
 * errors of mg_store_save; a checkpoint that could not be written leaves no files. */
mg_status mg_checkpoint_write(const char *folder, int64_t number, const mg_store *state, int keep,
                              mg_checkpoint_part *spare, bool *saved);
/* Removes a part, if there is one. MG_IO. */
mg_status mg_checkpoint_drop(const char *folder, mg_checkpoint_part *part);
/* Removes the parts of processes that died. MG_IO. */
mg_status mg_checkpoint_clean(const char *folder);
/* Removes one checkpoint. MG_IO. */
mg_status mg_checkpoint_remove(const char *folder, int64_t number);
/* Removes all checkpoints, `latest`, and the folder if nothing else is in it. MG_IO. */
mg_status mg_checkpoint_remove_all(const char *folder);

/* ---- writing in a thread (checkpoint_writer.c) ---- */

/* Writes checkpoints to one folder, in a thread of its own. */
typedef struct mg_checkpoint_writer mg_checkpoint_writer;

/* How a save ended. */
typedef struct mg_checkpoint_result {
    int64_t number; /* of the checkpoint */
    bool saved;     /* the checkpoint is complete, even if a later operation failed */
    mg_status status;
    char message[512]; /* the error, if status is not MG_OK */
} mg_checkpoint_result;

/* A writer for the folder, which is created if it is missing; incomplete checkpoints of earlier
 * processes are removed. The newest `keep` checkpoints are kept. Owned; NULL: MG_IO, also if there
 * is another writer for the folder, in this process or another; MG_OOM. */
mg_checkpoint_writer *mg_checkpoint_writer_new(const char *folder, int keep);
/* Starts saving the state as the next checkpoint and returns. Takes over the store, also on
 * failure. Its tensors must be evaluated and lie in host memory. If a save is in progress, waits
 * for it and drops its result. MG_OOM: no thread could be started. */
mg_status mg_checkpoint_writer_start(mg_checkpoint_writer *w, mg_store *state);
/* Whether a save is in progress. */
bool mg_checkpoint_writer_busy(mg_checkpoint_writer *w);
/* Waits for the save in progress. True: *result is the result of the last save, which no earlier
 * call has returned. */
bool mg_checkpoint_writer_wait(mg_checkpoint_writer *w, mg_checkpoint_result *result);
/* Waits, removes the spare checkpoint, and frees. Accepts NULL. */
void mg_checkpoint_writer_free(mg_checkpoint_writer *w);

#endif
