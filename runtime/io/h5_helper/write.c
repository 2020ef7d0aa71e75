/* From records to an HDF5 file. The records come from the library, which has checked them.
 *
 * Texts are stored as h5py does: a single one with variable length, an array of them with the
 * length of the longest. No times are stored, so that equal contents give equal files. */
#include "io/h5_helper/helper.h"
#include <stdlib.h>
#include <string.h>

enum { GROWTH = 8 << 20 }; /* bytes by which the file in memory grows */

/* Fails unless a call of libhdf5 has succeeded: then its result is not negative. */
static int64_t need(int64_t result, const char *path) {
    if (result < 0) fail("\"%s\" cannot be written", path);
    return result;
}

static hid_t open_space(const mg_h5_header *h) {
    hsize_t dims[MG_H5_MAX_RANK];
    for (uint32_t i = 0; i < h->rank; i++) dims[i] = h->shape[i];
    return h->rank ? H5Screate_simple((int)h->rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

static void write_dataset(hid_t file, const mg_h5_header *h, const char *path, const char *values) {
    const bool bytes = h->type == MG_H5_U8 && h->stored == MG_H5_FROM_I8;
    hid_t space = open_space(h);
    hid_t type = bytes ? H5Tcopy(H5T_STD_I8LE) : open_type((mg_h5_type)h->type);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(creation, 0);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    hid_t dataset =
        need(H5Dcreate2(file, path, type, space, H5P_DEFAULT, creation, H5P_DEFAULT), path);
    need(h->bytes ? H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) : 0, path);
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Tclose(type);
    H5Sclose(space);
}

/* The texts of a payload as an array of equal widths, for an array of rank 1. */
static char *equal_widths(const mg_h5_header *h, const char *payload, size_t *width) {
    uint32_t length;
    *width = 1;
    for (size_t at = 0; at < h->bytes; at += 4 + length) {
        memcpy(&length, payload + at, 4);
        if (length > *width) *width = length;
    }
    char *texts = allocate(*width * (size_t)h->shape[0]), *to = texts;
    memset(texts, 0, *width * (size_t)h->shape[0]);
    for (size_t at = 0; at < h->bytes; at += 4 + length, to += *width) {
        memcpy(&length, payload + at, 4);
        memcpy(to, payload + at + 4, length);
    }
    return texts;
}

static void write_attribute(hid_t file, const mg_h5_header *h, const char *path, const char *name,
                            const char *payload) {
    hid_t space = open_space(h), type;
    size_t width = H5T_VARIABLE;
    char *texts = NULL;
    const void *values = payload;
    if (h->type != MG_H5_TEXT) {
        type = open_type((mg_h5_type)h->type);
    } else {
        type = H5Tcopy(H5T_C_S1);
        H5Tset_cset(type, H5T_CSET_UTF8);
        H5Tset_strpad(type, h->rank ? H5T_STR_NULLPAD : H5T_STR_NULLTERM);
        if (h->rank) {
            values = texts = equal_widths(h, payload, &width);
        } else {
            texts = allocate(h->bytes - 3);
            memcpy(texts, payload + 4, h->bytes - 4);
            texts[h->bytes - 4] = 0;
            values = &texts;
        }
        H5Tset_size(type, width);
    }
    hid_t object = need(H5Oopen(file, *path ? path : "/", H5P_DEFAULT), path);
    hid_t attribute = need(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);
    need(H5Awrite(attribute, type, values), name);
    H5Aclose(attribute);
    H5Oclose(object);
    H5Tclose(type);
    H5Sclose(space);
    free(texts);
}

/* Writes one record; `parts` is path, name and payload. */
static void write_record(hid_t file, const mg_h5_header *h, const char *parts) {
    char path[MG_H5_MAX_NAME + 1], name[MG_H5_MAX_NAME + 1];
    memcpy(path, parts, h->path_length);
    memcpy(name, parts + h->path_length, h->name_length);
    path[h->path_length] = name[h->name_length] = 0;
    const char *payload = parts + h->path_length + h->name_length;
    if (h->kind == MG_H5_DATASET) write_dataset(file, h, path, payload);
    if (h->kind == MG_H5_ATTRIBUTE) write_attribute(file, h, path, name, payload);
    if (h->kind == MG_H5_GROUP && *path)
        H5Gclose(need(H5Gcreate2(file, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), path));
}

/* Writes the file that libhdf5 has built in memory to standard output. */
static void put_image(hid_t file) {
    need(H5Fflush(file, H5F_SCOPE_LOCAL), "/");
    const size_t size = (size_t)need(H5Fget_file_image(file, NULL, 0), "/");
    char *image = allocate(size);
    need(H5Fget_file_image(file, image, size), "/");
    put(image, size);
}

/* Takes the header at `at`, behind which the rest of its record must be. */
static mg_h5_header take_header(const char *records, size_t size, size_t at) {
    mg_h5_header h;
    const size_t left = size - at;
    if (left < sizeof h) fail("the records are cut off");
    memcpy(&h, records + at, sizeof h);
    const size_t parts = sizeof h + h.path_length + h.name_length;
    if (left < parts || left - parts < h.bytes) fail("the records are cut off");
    return h;
}

void write_file(const char *records, size_t size) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, GROWTH, 0); /* in memory, without a file behind it */
    hid_t file = need(H5Fcreate("image", H5F_ACC_TRUNC, H5P_DEFAULT, access), "/");
    mg_h5_header h = {0};
    for (size_t at = 0; h.kind != MG_H5_END;) {
        h = take_header(records, size, at);
        at += sizeof h;
        write_record(file, &h, records + at);
        at += h.path_length + h.name_length + h.bytes;
    }
    put_image(file);
}
