/* The parts of mgpu-h5, the program that reads and writes HDF5 files for the library.
 *
 * libhdf5 is not safe on hostile files, so it runs in a process that can do nothing but read its
 * standard input and write to its standard output. */
#ifndef MG_IO_H5_HELPER_H
#define MG_IO_H5_HELPER_H

#include "io/h5_protocol.h"
#include <hdf5.h>
#include <stddef.h>

/* ---- sandbox.c ---- */

/* Limits memory and CPU time for an input of `size` bytes, and the size of the output; forbids all
 * system calls except those for memory, reading, writing and exiting. */
void sandbox_enter(size_t size);

/* ---- records.c ---- */

/* Writes the message as an error record and ends the process. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Writes to standard output; ends the process if that fails. */
void put(const void *bytes, size_t n);
/* Writes a record without its payload: the header `h`, the path and the name. */
void put_header(mg_h5_header h, const char *path, const char *name);
/* malloc, or fail. */
void *allocate(size_t n);

/* ---- types.c ---- */

/* The record type for a type of HDF5, or -1. */
int type_of(hid_t type);
/* The integer type of a file that type_of widens. */
mg_h5_stored stored_of(hid_t type);
/* Words for a type that type_of does not know, or that is text. */
const char *why_not(hid_t type);
/* The type of HDF5 for a numeric record type, in memory and in files; to be closed. */
hid_t open_type(mg_h5_type type);
size_t type_size(mg_h5_type type);

/* ---- the two modes ---- */

/* Writes the records of the HDF5 file at `image`. */
void read_file(void *image, size_t size);
/* Writes the HDF5 file that the records describe. */
void write_file(const char *records, size_t size);

#endif
