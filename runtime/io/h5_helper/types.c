/* Element types of HDF5 and of records.
 *
 * Integers are widened to a type that the library has. h5py stores booleans as an enumeration over
 * int8, and Keras bfloat16 as opaque values of two bytes. */
#include "io/h5_helper/helper.h"
#include <string.h>

/* The record type for an integer of `size` bytes. */
static int integer_type(size_t size, H5T_sign_t sign) {
    if (size == 1 && sign == H5T_SGN_NONE) return MG_H5_U8;
    if (size < 4 || (size == 4 && sign == H5T_SGN_2)) return MG_H5_I32;
    return size <= 8 ? MG_H5_I64 : -1;
}

static int float_type(size_t size) {
    return size == 2 ? MG_H5_F16 : size == 4 ? MG_H5_F32 : size == 8 ? MG_H5_F64 : -1;
}

int type_of(hid_t type) {
    const size_t size = H5Tget_size(type);
    switch (H5Tget_class(type)) {
    case H5T_INTEGER: return integer_type(size, H5Tget_sign(type));
    case H5T_FLOAT: return float_type(size);
    case H5T_ENUM: return size == 1 && H5Tget_nmembers(type) == 2 ? MG_H5_BOOL : -1;
    case H5T_OPAQUE: return size == 2 ? MG_H5_BF16 : -1;
    case H5T_STRING: return MG_H5_TEXT;
    default: return -1;
    }
}

mg_h5_stored stored_of(hid_t type) {
    static const struct {
        size_t size;
        H5T_sign_t sign;
        mg_h5_stored stored;
    } integers[] = {{1, H5T_SGN_2, MG_H5_FROM_I8},
                    {2, H5T_SGN_2, MG_H5_FROM_I16},
                    {2, H5T_SGN_NONE, MG_H5_FROM_U16},
                    {4, H5T_SGN_NONE, MG_H5_FROM_U32},
                    {8, H5T_SGN_NONE, MG_H5_FROM_U64}};
    if (H5Tget_class(type) != H5T_INTEGER) return MG_H5_NOT_WIDENED;
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        if (integers[i].size == H5Tget_size(type) && integers[i].sign == H5Tget_sign(type))
            return integers[i].stored;
    return MG_H5_NOT_WIDENED;
}

const char *why_not(hid_t type) {
    static const struct {
        H5T_class_t kind;
        const char *text;
    } kinds[] = {
        {H5T_STRING, "text"},
        {H5T_COMPOUND, "a compound type; save the parts of complex numbers as two datasets"},
        {H5T_FLOAT, "a float of a size that tensors do not have; save it as float32"},
        {H5T_INTEGER, "an integer of a size that tensors do not have; save it as int64"},
        {H5T_ENUM, "an enumeration; save it as integers"},
        {H5T_NO_CLASS, "neither numbers nor booleans"}};
    int i = 0;
    while (kinds[i].kind != H5Tget_class(type) && kinds[i].kind != H5T_NO_CLASS) i++;
    return kinds[i].text;
}

/* IEEE half precision, for which libhdf5 has a name only from version 1.14 on. */
static hid_t half_type(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

/* As h5py makes it. */
static hid_t boolean_type(void) {
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    const signed char no = 0, yes = 1;
    H5Tenum_insert(type, "FALSE", &no);
    H5Tenum_insert(type, "TRUE", &yes);
    return type;
}

hid_t open_type(mg_h5_type type) {
    switch (type) {
    case MG_H5_BOOL: return boolean_type();
    case MG_H5_U8: return H5Tcopy(H5T_STD_U8LE);
    case MG_H5_I32: return H5Tcopy(H5T_STD_I32LE);
    case MG_H5_I64: return H5Tcopy(H5T_STD_I64LE);
    case MG_H5_BF16: return H5Tcreate(H5T_OPAQUE, 2);
    case MG_H5_F16: return half_type();
    case MG_H5_F32: return H5Tcopy(H5T_IEEE_F32LE);
    case MG_H5_F64: return H5Tcopy(H5T_IEEE_F64LE);
    default: return -1;
    }
}

size_t type_size(mg_h5_type type) {
    static const size_t sizes[] = {
        [MG_H5_BOOL] = 1, [MG_H5_U8] = 1,  [MG_H5_I32] = 4, [MG_H5_I64] = 8,
        [MG_H5_BF16] = 2, [MG_H5_F16] = 2, [MG_H5_F32] = 4, [MG_H5_F64] = 8};
    return type < MG_H5_TEXT ? sizes[type] : 0;
}
