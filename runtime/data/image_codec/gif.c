/* mgpu-gif.so: the first image of GIF files, with giflib. What follows it is not read.
 *
 * As in TensorFlow and Pillow, the image has the size of the file's screen. Pixels that are
 * transparent, or beside a first image that does not fill the screen, are black with alpha 0. */
#include "core/alloc.h"
#include "data/image.h"
#include <gif_lib.h>
#include <string.h>

/* The maximum number of pixels that a byte can stand for: a code of LZW is at most 4096 pixels, but
 * a small image may lie on a large screen. */
enum { PIXELS_PER_BYTE = 32768 };

typedef struct reader {
    const uint8_t *bytes;
    size_t n, at;
    bool truncated;
    GifFileType *gif; /* owned */
    uint8_t *line;    /* owned: indices of a row, then the same as red, green, blue and alpha */
} reader;

static int on_read(GifFileType *gif, GifByteType *dst, int n) {
    reader *r = gif->UserData;
    const size_t left = r->n - r->at, some = (size_t)n < left ? (size_t)n : left;
    memcpy(dst, r->bytes + r->at, some);
    r->at += some;
    if (some < (size_t)n) r->truncated = true;
    return (int)some;
}

/* The failure of giflib with this code. */
static mg_status fail(const reader *r, int code) {
    const char *text = GifErrorString(code);
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM) return mg_fail(MG_OOM, "out of memory: a GIF image");
    if (r->truncated)
        return mg_fail(MG_DATA, "GIF: the file is truncated: it ends after %zu bytes", r->n);
    return mg_fail(MG_DATA, "GIF: %s", text ? text : "the file is damaged");
}

/* Skips an extension, or takes from it the index of the transparent color. */
static mg_status read_extension(reader *r, int *transparent) {
    GifByteType *block;
    GraphicsControlBlock control;
    int code;
    if (DGifGetExtension(r->gif, &code, &block) != GIF_OK) return fail(r, r->gif->Error);
    while (block) {
        if (code == GRAPHICS_EXT_FUNC_CODE &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            *transparent = control.TransparentColor; /* or NO_TRANSPARENT_COLOR, -1 */
        if (DGifGetExtensionNext(r->gif, &block) != GIF_OK) return fail(r, r->gif->Error);
    }
    return MG_OK;
}

/* Goes to the first image. */
static mg_status find_image(reader *r, int *transparent) {
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(r->gif, &type) != GIF_OK) return fail(r, r->gif->Error);
        if (type == IMAGE_DESC_RECORD_TYPE) break;
        if (type != EXTENSION_RECORD_TYPE) return mg_fail(MG_DATA, "GIF: there is no image");
        MG_TRY(read_extension(r, transparent));
    }
    return DGifGetImageDesc(r->gif) == GIF_OK ? MG_OK : fail(r, r->gif->Error);
}

/* Decodes a row of the first image into its place. */
static mg_status read_row(reader *r, const ColorMapObject *colors, int transparent, int row,
                          const mg_image *image) {
    const GifImageDesc *d = &r->gif->Image;
    uint8_t *rgba = r->line + d->Width;
    if (DGifGetLine(r->gif, r->line, d->Width) != GIF_OK) return fail(r, r->gif->Error);
    for (int i = 0; i < d->Width; i++) {
        const int index = r->line[i];
        if (index != transparent && index >= colors->ColorCount)
            return mg_fail(MG_DATA, "GIF: a pixel has color %d of a palette of %d", index,
                           colors->ColorCount);
        const GifColorType *c = &colors->Colors[index == transparent ? 0 : index];
        const uint8_t pixel[4] = {c->Red, c->Green, c->Blue, 255}, nothing[4] = {0};
        memcpy(rgba + 4 * i, index == transparent ? nothing : pixel, 4);
    }
    const int64_t place = (int64_t)(d->Top + row) * image->width + d->Left;
    mg_image_put(image->pixels + place * image->channels, image->channels, rgba, d->Width);
    return MG_OK;
}

static mg_status read_rows(reader *r, const ColorMapObject *colors, int transparent,
                           const mg_image *image) {
    static const struct pass {
        int first, step;
    } interlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}}, plain[] = {{0, 1}};
    const GifImageDesc *d = &r->gif->Image;
    const struct pass *p = d->Interlace ? interlaced : plain, *end = p + (d->Interlace ? 4 : 1);
    for (; p < end; p++)
        for (int row = p->first; row < d->Height; row += p->step)
            MG_TRY(read_row(r, colors, transparent, row, image));
    return MG_OK;
}

static mg_status decode(reader *r, int channels, mg_image *image) {
    int code = 0, transparent = NO_TRANSPARENT_COLOR;
    r->gif = DGifOpen(r, on_read, &code);
    if (!r->gif) return fail(r, code);
    MG_TRY(find_image(r, &transparent));
    const GifImageDesc *d = &r->gif->Image;
    const ColorMapObject *colors = d->ColorMap ? d->ColorMap : r->gif->SColorMap;
    if (!colors) return mg_fail(MG_DATA, "GIF: the image has no palette");
    if (d->Width < 1 || d->Height < 1 || d->Left + d->Width > r->gif->SWidth ||
        d->Top + d->Height > r->gif->SHeight)
        return mg_fail(MG_DATA, "GIF: the first image is empty, or not within the screen");
    const int own = transparent == NO_TRANSPARENT_COLOR ? 3 : 4;
    MG_TRY(mg_image_take(image, r->gif->SHeight, r->gif->SWidth, channels ? channels : own, r->n,
                         PIXELS_PER_BYTE));
    memset(image->pixels, 0, mg_image_samples(image));
    r->line = mg_alloc((size_t)d->Width * 5);
    return r->line ? read_rows(r, colors, transparent, image) : MG_OOM;
}

static mg_status gif_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                            mg_image *image) {
    (void)wanted;
    int code;
    reader r = {.bytes = bytes, .n = n};
    const mg_status status = decode(&r, channels, image);
    if (r.gif) DGifCloseFile(r.gif, &code);
    mg_free(r.line);
    return status == MG_OK ? MG_OK : mg_image_failed(image, status);
}

extern const mg_image_codecs mg_image_plugin;
const mg_image_codecs mg_image_plugin = {.decode = {[MG_GIF] = gif_decode}};
