/* From an HDF5 file in memory to records.
 *
 * Only objects in the file itself are read: soft and external links are left out, and so are
 * attributes of types that models do not use. */
#include "io/h5_helper/helper.h"
#include <hdf5_hl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_OBJECTS = 1000000 };

/* The path of the object being read, without the leading slash. */
typedef struct place {
    char path[MG_H5_MAX_NAME + 1];
    int depth;
} place;

static size_t bytes_left; /* of all payloads */
static int objects_left = MAX_OBJECTS;

/* Counts the payload of n elements against the limit; returns its size. */
static size_t count_bytes(const char *path, size_t n, size_t size) {
    if (n > bytes_left / size)
        fail("\"%s\" claims %zu elements of %zu bytes, which is too much for the file's size", path,
             n, size);
    bytes_left -= n * size;
    return n * size;
}

/* Fills rank and shape of the header from a dataspace; returns the number of elements. */
static size_t read_shape(const char *path, hid_t space, mg_h5_header *h) {
    hsize_t dims[H5S_MAX_RANK];
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0 || rank > MG_H5_MAX_RANK)
        fail("\"%s\" has %d axes, at most %d are possible", path, rank, MG_H5_MAX_RANK);
    if (H5Sget_simple_extent_type(space) == H5S_NULL) return h->rank = 1, h->shape[0] = 0;
    H5Sget_simple_extent_dims(space, dims, NULL);
    size_t n = 1;
    h->rank = (uint32_t)rank;
    for (int i = 0; i < rank; i++) {
        h->shape[i] = dims[i];
        if (dims[i] > INT64_MAX || (dims[i] && n > SIZE_MAX / 16 / dims[i]))
            fail("\"%s\" claims too many elements", path);
        n *= (size_t)dims[i];
    }
    return n;
}

/* ---- attributes ---- */

/* The texts of an attribute, as a payload; variable_ or fixed-length strings. */
static char *text_payload(const char *path, hid_t attribute, hid_t type, size_t n, size_t *bytes) {
    const int variable = H5Tis_variable_str(type) > 0;
    const size_t width = variable ? sizeof(char *) : H5Tget_size(type);
    hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_size(memory, variable ? H5T_VARIABLE : width);
    H5Tset_strpad(memory, H5T_STR_NULLPAD);
    H5Tset_cset(memory, H5Tget_cset(type));
    char *raw = allocate(count_bytes(path, n, width + 4));
    if (H5Aread(attribute, memory, raw) < 0) fail("\"%s\": an attribute cannot be read", path);
    *bytes = 0;
    char *payload = NULL;
    for (int pass = 0; pass < 2; pass++) { /* measures, then writes */
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            const char *text = variable ? ((char **)(void *)raw)[i] : raw + i * width;
            const uint32_t length =
                !text ? 0 : (uint32_t)(variable ? strlen(text) : strnlen(text, width));
            if (payload) memcpy(payload + at, &length, 4);
            if (payload && length) memcpy(payload + at + 4, text, length);
            at += 4 + length;
        }
        if (!payload) payload = allocate(count_bytes(path, at, 1));
        *bytes = at;
    }
    H5Tclose(memory);
    free(raw);
    return payload;
}

/* For H5Aiterate2. */
static herr_t read_attribute(hid_t object, const char *name, const H5A_info_t *info,
                             void *context) {
    const place *at = context;
    (void)info;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) fail("the attribute \"%.80s\" of \"%s\" is damaged", name, at->path);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const int kind = type_of(type);
    if (kind >= 0 && strlen(name) <= MG_H5_MAX_NAME) {
        mg_h5_header h = {.kind = MG_H5_ATTRIBUTE, .type = (uint32_t)kind};
        const size_t n = read_shape(at->path, space, &h);
        size_t bytes;
        char *payload;
        if (kind == MG_H5_TEXT) {
            payload = text_payload(at->path, attribute, type, n, &bytes);
        } else {
            hid_t memory = open_type((mg_h5_type)kind);
            payload = allocate(bytes = count_bytes(at->path, n, type_size((mg_h5_type)kind)));
            if (H5Aread(attribute, kind == MG_H5_BOOL ? type : memory, payload) < 0)
                fail("the attribute \"%.80s\" of \"%s\" cannot be read", name, at->path);
            H5Tclose(memory);
        }
        h.bytes = bytes;
        put_header(h, at->path, name);
        put(payload, bytes);
        free(payload);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

/* ---- datasets and groups ---- */

/* Refuses a dataset that claims more than its stored bytes can hold, before memory is allocated. */
static void check_storage(const char *path, hid_t dataset, size_t bytes) {
    hid_t creation = H5Dget_create_plist(dataset);
    const int plain = H5Pget_layout(creation) != H5D_CHUNKED;
    const size_t stored = (size_t)H5Dget_storage_size(dataset);
    if (H5Pget_external_count(creation) > 0) fail("\"%s\" is stored in another file", path);
    if (plain ? stored < bytes : bytes > 1100 * stored) /* deflate makes 1 byte of at most 1032 */
        fail("\"%s\" claims %zu bytes and stores %zu", path, bytes, stored);
    H5Pclose(creation);
}

/* Fails at the first of n elements of uint64 that int64 cannot hold. */
static void check_range(const char *path, const char *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        memcpy(&v, values + i * sizeof v, sizeof v);
        if (v > INT64_MAX)
            fail("\"%s\": element %zu is %llu, which no dtype of tensors holds: uint64 is read as "
                 "int64, up to 9223372036854775807",
                 path, i, (unsigned long long)v);
    }
}

static void read_dataset(hid_t dataset, place *at) {
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const int kind = type_of(type);
    if (kind < 0 || kind == MG_H5_TEXT)
        fail("\"%s\" has a type that tensors do not have: %s", at->path, why_not(type));
    const mg_h5_stored stored = stored_of(type);
    mg_h5_header h = {.kind = MG_H5_DATASET, .type = (uint32_t)kind, .stored = stored};
    const size_t n = read_shape(at->path, space, &h);
    h.bytes = count_bytes(at->path, n, type_size((mg_h5_type)kind));
    check_storage(at->path, dataset, n * H5Tget_size(type));
    hid_t memory = stored == MG_H5_FROM_U64 ? H5Tcopy(H5T_STD_U64LE) : open_type((mg_h5_type)kind);
    /* enumerations and opaque values are read as they are */
    const int raw = kind == MG_H5_BOOL || kind == MG_H5_BF16;
    char *values = allocate(h.bytes);
    if (n && H5Dread(dataset, raw ? type : memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        fail("\"%s\" cannot be read: it is damaged, or compressed in a way this libhdf5 lacks",
             at->path);
    for (size_t i = 0; kind == MG_H5_BOOL && i < n; i++) values[i] = values[i] != 0;
    if (stored == MG_H5_FROM_U64) check_range(at->path, values, n);
    put_header(h, at->path, "");
    put(values, h.bytes);
    free(values);
    H5Tclose(memory);
    H5Sclose(space);
    H5Tclose(type);
}

static void read_object(hid_t object, place *at);

/* For H5Literate: enters the objects that the group itself contains. */
static herr_t read_link(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    place *at = context;
    const size_t length = strlen(at->path);
    if (info->type != H5L_TYPE_HARD) return 0;
    if (length + strlen(name) + 1 > MG_H5_MAX_NAME)
        fail("a name in \"%.200s\" is too long", at->path);
    if (++at->depth > MAX_DEPTH) fail("groups nest deeper than %d", MAX_DEPTH);
    if (--objects_left < 0) fail("there are more than %d objects", MAX_OBJECTS);
    snprintf(at->path + length, sizeof at->path - length, "%s%s", length ? "/" : "", name);
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) fail("\"%s\" is damaged", at->path);
    read_object(object, at);
    H5Oclose(object);
    at->depth--;
    at->path[length] = 0;
    return 0;
}

static void read_object(hid_t object, place *at) {
    const H5I_type_t kind = H5Iget_type(object);
    if (kind == H5I_GROUP || kind == H5I_FILE)
        put_header((mg_h5_header){.kind = MG_H5_GROUP}, at->path, "");
    else if (kind == H5I_DATASET)
        read_dataset(object, at);
    else
        return; /* a named type */
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, read_attribute, at) < 0)
        fail("the attributes of \"%s\" are damaged", at->path);
    if (kind == H5I_DATASET) return;
    if (H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, NULL, read_link, at) < 0)
        fail("the group \"%s\" is damaged", at->path);
}

void read_file(void *image, size_t size) {
    static place root;
    bytes_left = MG_H5_FREE_BYTES / 2 + MG_H5_MAX_RATIO * size;
    hid_t file =
        H5LTopen_file_image(image, size, H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
    if (file < 0) fail("it is not an HDF5 file, or it is damaged");
    hid_t group = H5Gopen2(file, "/", H5P_DEFAULT);
    if (group < 0) fail("its root group is damaged");
    read_object(group, &root);
    put_header((mg_h5_header){.kind = MG_H5_END}, "", "");
}
