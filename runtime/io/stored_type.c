/* The table of stored types, and widening. */
#include "io/stored_type.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const mg_stored_type types[] = {
    {.name = "int8", .npy = "i1", .safetensors = "I8", .dtype = MG_I32, .size = 1},
    {.name = "int16", .npy = "i2", .safetensors = "I16", .dtype = MG_I32, .size = 2},
    {.name = "uint16", .npy = "u2", .safetensors = "U16", .dtype = MG_I32, .size = 2},
    {.name = "uint32", .npy = "u4", .safetensors = "U32", .dtype = MG_I64, .size = 4},
    {.name = "uint64", .npy = "u8", .safetensors = "U64", .dtype = MG_I64, .size = 8},
    {.name = "float8_e4m3",
     .safetensors = "F8_E4M3",
     .dtype = MG_F32,
     .size = 1,
     .on_request = true,
     .mantissa = 3,
     .bias = 7,
     .special = MG_NO_INFINITY},
    {.name = "float8_e5m2",
     .safetensors = "F8_E5M2",
     .dtype = MG_F32,
     .size = 1,
     .on_request = true,
     .mantissa = 2,
     .bias = 15,
     .special = MG_IEEE},
    {.name = "float8_e4m3fnuz",
     .safetensors = "F8_E4M3FNUZ",
     .dtype = MG_F32,
     .size = 1,
     .on_request = true,
     .mantissa = 3,
     .bias = 8,
     .special = MG_ONE_NAN},
    {.name = "float8_e5m2fnuz",
     .safetensors = "F8_E5M2FNUZ",
     .dtype = MG_F32,
     .size = 1,
     .on_request = true,
     .mantissa = 2,
     .bias = 16,
     .special = MG_ONE_NAN},
    /* a power of two, without a sign */
    {.name = "float8_e8m0",
     .safetensors = "F8_E8M0",
     .dtype = MG_F32,
     .size = 1,
     .on_request = true,
     .bias = 127},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

const mg_stored_type *mg_stored_type_of_npy(const char *name) {
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].npy && strcmp(types[i].npy, name) == 0) return &types[i];
    return NULL;
}

const mg_stored_type *mg_stored_type_of_safetensors(const char *name) {
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].safetensors, name) == 0) return &types[i];
    return NULL;
}

/* ---- values ---- */

static bool is_nan(const mg_stored_type *t, int code) {
    if (!t->mantissa) return code == 0xff;
    if (t->special == MG_NO_INFINITY) return (code & 0x7f) == 0x7f;
    if (t->special == MG_ONE_NAN) return code == 0x80;
    return (code & 0x7f) > 0x7f >> t->mantissa << t->mantissa;
}

/* The value of an 8-bit float: exact, since float32 has more of everything. */
static float value_of(const mg_stored_type *t, int code) {
    if (is_nan(t, code)) return NAN;
    if (!t->mantissa) return ldexpf(1, code - t->bias);
    const int ones = 0x7f >> t->mantissa, exponent = (code & 0x7f) >> t->mantissa;
    const int fraction = code & ((1 << t->mantissa) - 1), unit = 1 << t->mantissa;
    float v;
    if (t->special == MG_IEEE && exponent == ones)
        v = INFINITY;
    else if (exponent == 0)
        v = ldexpf((float)fraction, 1 - t->bias - t->mantissa);
    else
        v = ldexpf((float)(unit + fraction), exponent - t->bias - t->mantissa);
    return code & 0x80 ? -v : v;
}

static int64_t whole_of(const mg_stored_type *t, const unsigned char *p) {
    uint64_t bits = 0;
    for (size_t i = t->size; i-- > 0;) bits = bits << 8 | p[i];
    if (t->name[0] == 'u') return (int64_t)bits;
    return t->size == 1 ? (int8_t)bits : (int16_t)bits;
}

/* The first element above the range of int64 is an error. */
static mg_status check_range(const unsigned char *bytes, size_t n, const char *path,
                             const char *name) {
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        memcpy(&v, bytes + i * sizeof v, sizeof v);
        if (v > INT64_MAX)
            return mg_fail(MG_UNSUPPORTED,
                           "%s: %.80s: element %zu is %llu, which no dtype of tensors holds: "
                           "uint64 is read as int64, up to 9223372036854775807",
                           path, name, i, (unsigned long long)v);
    }
    return MG_OK;
}

/* An element is written before or over its own bytes, after they have been read, and never over
 * those of a later one. */
mg_status mg_stored_widen(const mg_stored_type *t, void *block, size_t n, const char *path,
                          const char *name) {
    const size_t size = mg_dtype_size(t->dtype);
    unsigned char *to = block;
    const unsigned char *from = to + n * (size - t->size);
    float table[256];
    if (t->size == size) return check_range(from, n, path, name);
    if (t->dtype == MG_F32)
        for (int code = 0; code < 256; code++) table[code] = value_of(t, code);
    for (size_t i = 0; i < n; i++, to += size, from += t->size) {
        if (t->dtype == MG_F32) {
            memcpy(to, &table[*from], size);
        } else {
            const int64_t v = whole_of(t, from); /* its first bytes are those of an int32 */
            memcpy(to, &v, size);
        }
    }
    return MG_OK;
}
