/* The bytes of protocol buffers in a file, read through a window; every length is checked against
 * the message around it. */
#include "core/alloc.h"
#include "io/onnx.h"
#include <string.h>

enum { WINDOW = 64 << 10, MOST_TEXT = 64 << 20 };

mg_status onnx_damaged(const onnx_reader *r, const char *what) {
    return mg_fail(MG_DATA, "%s: the ONNX file is damaged at byte %lld: %s", r->f->path,
                   (long long)r->at, what);
}

/* Brings the bytes from r->at on into the window. */
static mg_status fill(onnx_reader *r) {
    if (!r->window) r->window = mg_alloc(WINDOW);
    if (!r->window) return MG_OOM;
    r->first = r->at;
    return mg_io_read_at(r->f->file, r->window, WINDOW, r->at, &r->filled);
}

mg_status onnx_read_bytes(onnx_reader *r, int64_t end, void *dst, size_t n) {
    if ((uint64_t)(end - r->at) < n) return onnx_damaged(r, "a number is cut off");
    for (unsigned char *p = dst; n > 0;) {
        const int64_t from = r->at - r->first;
        if (from < 0 || from >= (int64_t)r->filled) {
            MG_TRY(fill(r));
            if (r->filled == 0) return onnx_damaged(r, "the file has become shorter");
            continue;
        }
        const size_t there = r->filled - (size_t)from, part = n < there ? n : there;
        memcpy(p, r->window + from, part);
        p += part;
        n -= part;
        r->at += (int64_t)part;
    }
    return MG_OK;
}

mg_status onnx_read_varint(onnx_reader *r, int64_t end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        unsigned char byte;
        MG_TRY(onnx_read_bytes(r, end, &byte, 1));
        if (shift == 63 && byte > 1) break; /* more than 64 bits */
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return MG_OK;
    }
    return onnx_damaged(r, "an integer has more than 64 bits");
}

mg_status onnx_read_key(onnx_reader *r, int64_t end, uint64_t *number, int *type,
                        int64_t *field_end) {
    uint64_t key, length;
    MG_TRY(onnx_read_varint(r, end, &key));
    *number = key >> 3;
    *type = (int)(key & 7);
    *field_end = end;
    if (*number == 0 || *number >= 1 << 29) return onnx_damaged(r, "a field has no valid number");
    if (*type == ONNX_VARINT || *type == ONNX_FIXED32 || *type == ONNX_FIXED64) return MG_OK;
    if (*type != ONNX_BYTES) return onnx_damaged(r, "a field has an unknown wire type");
    MG_TRY(onnx_read_varint(r, end, &length));
    if (length > (uint64_t)(end - r->at))
        return onnx_damaged(r, "a length exceeds the message that contains it");
    *field_end = r->at + (int64_t)length;
    return MG_OK;
}

mg_status onnx_skip(onnx_reader *r, int type, int64_t field_end) {
    uint64_t value;
    if (type == ONNX_VARINT) return onnx_read_varint(r, field_end, &value);
    const int64_t next = type == ONNX_FIXED32   ? r->at + 4
                         : type == ONNX_FIXED64 ? r->at + 8
                                                : field_end;
    if (next > field_end) return onnx_damaged(r, "a number is cut off");
    r->at = next;
    return MG_OK;
}

char *onnx_read_text(onnx_reader *r, int64_t end, size_t *n) {
    *n = (size_t)(end - r->at);
    r->text += end - r->at;
    if (r->text > MOST_TEXT) {
        mg_fail(MG_UNSUPPORTED, "%s: the graph has more than %s of text", r->f->path,
                MG_SIZE_TEXT(MOST_TEXT));
        return NULL;
    }
    char *text = mg_alloc(*n + 1);
    if (text) text[*n] = 0;
    if (text && onnx_read_bytes(r, end, text, *n) == MG_OK) return text;
    mg_free(text);
    return NULL;
}
