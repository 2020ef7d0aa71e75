/* JPEG with libjpeg-turbo.
 *
 * libjpeg reports errors with longjmp. So everything that must survive one is in a struct which the
 * caller of the function with setjmp owns, and those functions have no local variables that change
 * after setjmp. libjpeg's warnings (truncated or damaged data, where it would continue with gray)
 * are errors here.
 *
 * If only a region of an image is wanted, no pixels of other blocks are computed. But all bits are
 * read, also those of the rows below the region, so that a damaged image fails whatever region is
 * wanted: damage is often detected only further on. This takes a tenth of the time of a random
 * crop.
 *
 * CMYK colors become RGB as in Pillow: they are stored inverted, as Adobe's programs write them. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <setjmp.h>
#include <stdio.h>
/* needs stdio.h before it */
#include <jpeglib.h>

/* needs jpeglib.h before it: the messages' numbers depend on the version of the interface */
#include <jerror.h>

enum {
    /* The maximum number of pixels that a byte can encode: a block of 8 x 8 has at least one bit,
     * and another component of the image may have 4 x 4 times as many pixels in its blocks. */
    PIXELS_PER_BYTE = 64 * 8 * 16,
    /* Scans of a file; a small progressive file could otherwise keep the decoder busy for hours. */
    MOST_SCANS = 500,
    /* Columns beside a region that are decoded too where colors have fewer columns than the image:
     * a pixel's color is interpolated from its neighbors'. */
    MARGIN = 8,
    ROWS = 16 /* decoded at once, at most */
};

/* The state of libjpeg's error handling. */
typedef struct failure {
    struct jpeg_error_mgr errors; /* first: libjpeg keeps its address */
    jmp_buf jump;
    mg_status code, status; /* of libjpeg's errors; of the one that happened */
} failure;

typedef struct decoder {
    failure failure;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    uint8_t *cmyk; /* owned: ROWS rows of an image in these colors, else NULL */
} decoder;

typedef struct encoder {
    failure failure;
    struct jpeg_destination_mgr destination;
    struct jpeg_compress_struct jpeg;
    mg_image_file *file;
} encoder;

/* ---- what libjpeg calls ---- */

_Noreturn static void stop(j_common_ptr jpeg, mg_status status) {
    failure *f = (failure *)jpeg->err;
    f->status = status;
    longjmp(f->jump, 1);
}

static mg_status no_image(void) {
    return mg_fail(MG_DATA, "JPEG: the file is truncated, or has no image");
}

_Noreturn static void on_error(j_common_ptr jpeg) {
    char text[JMSG_LENGTH_MAX];
    const failure *f = (const failure *)jpeg->err;
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        stop(jpeg, mg_fail(MG_OOM, "out of memory: a JPEG image"));
    jpeg->err->format_message(jpeg, text);
    stop(jpeg, mg_fail(f->code, "JPEG: %s", text));
}

/* A level below 0 is a warning. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    const j_decompress_ptr j = (j_decompress_ptr)jpeg;
    if (jpeg->is_decompressor && jpeg->err->msg_code == JWRN_JPEG_EOF && !j->image_width)
        stop(jpeg, no_image());
    on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg) {
    if (((j_decompress_ptr)jpeg)->input_scan_number > MOST_SCANS)
        stop(jpeg, mg_fail(MG_DATA, "JPEG: the image has more than %d scans", MOST_SCANS));
}

static struct jpeg_error_mgr *set_failure(failure *f, mg_status code) {
    jpeg_std_error(&f->errors);
    f->errors.error_exit = on_error;
    f->errors.emit_message = on_message;
    f->code = code;
    return &f->errors;
}

/* ---- decoding ---- */

static J_COLOR_SPACE color_space(int channels) {
    return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
}

/* Reads the header and allocates the pixels. */
static mg_status read_header(decoder *d, size_t n, int channels, mg_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    if (jpeg_read_header(j, FALSE) != JPEG_HEADER_OK) return no_image(); /* tables alone */
    const int own = j->jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    MG_TRY(mg_image_take(image, j->image_height, j->image_width, channels ? channels : own, n,
                         PIXELS_PER_BYTE));
    j->dct_method = JDCT_ISLOW;
    j->out_color_space = color_space(image->channels);
    if (j->jpeg_color_space != JCS_CMYK && j->jpeg_color_space != JCS_YCCK) return MG_OK;
    j->out_color_space = JCS_CMYK;
    d->cmyk = mg_alloc((size_t)ROWS * (size_t)image->width * 4);
    return d->cmyk ? MG_OK : MG_OOM;
}

/* n pixels of inverted CMYK, in place: what is not there of a color darkens the white, which black
 * has darkened before. */
static void cmyk_to_rgba(uint8_t *pixel, JDIMENSION n) {
    for (JDIMENSION i = 0; i < n; i++, pixel += 4) {
        const int white = pixel[3];
        for (int c = 0; c < 3; c++) {
            const int product = (255 - pixel[c]) * white + 128;
            const int dark = ((product >> 8) + product) >> 8; /* product / 255, rounded */
            pixel[c] = (uint8_t)(white > dark ? white - dark : 0);
        }
        pixel[3] = 255;
    }
}

/* Limits decoding to the columns of the region and the columns that libjpeg needs beside them.
 * RETURNS the first decoded column. */
static JDIMENSION crop_columns(struct jpeg_decompress_struct *j, const mg_region *r) {
    const int64_t margin = j->max_h_samp_factor > 1 ? MARGIN : 0, end = r->column + r->width;
    const int64_t from = r->column > margin ? r->column - margin : 0;
    const int64_t to = end + margin < j->output_width ? end + margin : j->output_width;
    JDIMENSION first = (JDIMENSION)from, width = (JDIMENSION)(to - from);
    if (width == j->output_width) return 0;
    jpeg_crop_scanline(j, &first, &width); /* may begin further to the left */
    return first;
}

/* Skips to the row `to`. */
static void skip_rows(struct jpeg_decompress_struct *j, JDIMENSION to) {
    if (to > j->output_scanline) jpeg_skip_scanlines(j, to - j->output_scanline);
}

/* Decodes the rows up to `to` into their places, from the column at `first` in row 0 on. */
static void read_rows(decoder *d, JDIMENSION to, uint8_t *first, const mg_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    const size_t stride = (size_t)image->width * (size_t)image->channels;
    while (j->output_scanline < to) {
        uint8_t *row[ROWS], *place = first + j->output_scanline * stride;
        const JDIMENSION left = to - j->output_scanline, n = left < ROWS ? left : ROWS;
        for (JDIMENSION i = 0; i < n; i++)
            row[i] = d->cmyk ? d->cmyk + (size_t)i * j->output_width * 4 : place + i * stride;
        const JDIMENSION got = jpeg_read_scanlines(j, row, n);
        for (JDIMENSION i = 0; d->cmyk && i < got; i++) {
            cmyk_to_rgba(row[i], j->output_width);
            mg_image_put(place + i * stride, image->channels, row[i], j->output_width);
        }
    }
}

/* Decodes the region into its place in the image. The last row is decoded as well, because libjpeg
 * does not read rows that are skipped at the end. */
static void read_pixels(decoder *d, const mg_image *image, const mg_region *r) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    jpeg_start_decompress(j);
    uint8_t *first = image->pixels + crop_columns(j, r) * (size_t)image->channels;
    skip_rows(j, (JDIMENSION)r->row);
    read_rows(d, (JDIMENSION)(r->row + r->height), first, image);
    skip_rows(j, j->output_height - 1);
    read_rows(d, j->output_height, first, image);
    jpeg_finish_decompress(j);
}

static mg_status decode(decoder *d, const uint8_t *bytes, size_t n, int channels,
                        const mg_wanted *wanted, mg_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    j->err = set_failure(&d->failure, MG_DATA);
    if (setjmp(d->failure.jump)) return d->failure.status;
    jpeg_create_decompress(j);
    d->progress.progress_monitor = on_progress;
    j->progress = &d->progress;
    jpeg_mem_src(j, bytes, n);
    MG_TRY(read_header(d, n, channels, image));
    mg_region r = {.height = image->height, .width = image->width};
    if (wanted) MG_TRY(wanted->region(wanted, image->height, image->width, &r));
    read_pixels(d, image, &r);
    return MG_OK;
}

mg_status mg_jpeg_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                         mg_image *image) {
    decoder d = {.progress = {0}};
    const mg_status status = decode(&d, bytes, n, channels, wanted, image);
    jpeg_destroy_decompress(&d.jpeg);
    mg_free(d.cmyk);
    if (status == MG_OK) return MG_OK;
    mg_image_failed(image, status);
    /* so that a damaged image gives the same message for every region */
    return wanted && status == MG_DATA ? mg_jpeg_decode(bytes, n, channels, NULL, image) : status;
}

/* ---- encoding ---- */

/* Makes room for `room` bytes and tells libjpeg where to write after the first n. */
static void grow(j_compress_ptr j, size_t n, size_t room) {
    encoder *e = j->client_data;
    uint8_t *grown = mg_realloc(e->file->bytes, room);
    if (!grown) stop((j_common_ptr)j, MG_OOM);
    e->file->bytes = grown;
    e->file->room = room;
    e->destination.next_output_byte = grown + n;
    e->destination.free_in_buffer = room - n;
}

static void on_begin(j_compress_ptr j) {
    grow(j, 0, 4096 + (size_t)j->image_width * j->image_height / 2);
}

/* All of the room is used. */
static boolean on_full(j_compress_ptr j) {
    const encoder *e = j->client_data;
    grow(j, e->file->room, 2 * e->file->room);
    return TRUE;
}

static void on_end(j_compress_ptr j) {
    const encoder *e = j->client_data;
    e->file->n = e->file->room - e->destination.free_in_buffer;
}

static void write_pixels(struct jpeg_compress_struct *j, const mg_image *image, int quality) {
    j->image_height = (JDIMENSION)image->height;
    j->image_width = (JDIMENSION)image->width;
    j->input_components = image->channels;
    j->in_color_space = color_space(image->channels);
    jpeg_set_defaults(j);
    jpeg_set_quality(j, quality, TRUE);
    for (int k = 0; k < j->num_components; k++)
        j->comp_info[k].h_samp_factor = j->comp_info[k].v_samp_factor = 1;
    j->dct_method = JDCT_ISLOW;
    jpeg_start_compress(j, TRUE);
    while (j->next_scanline < j->image_height) {
        uint8_t *row =
            image->pixels + (size_t)j->next_scanline * j->image_width * (size_t)image->channels;
        jpeg_write_scanlines(j, &row, 1);
    }
    jpeg_finish_compress(j);
}

static mg_status encode(encoder *e, const mg_image *image, int quality) {
    e->jpeg.err = set_failure(&e->failure, MG_INTERNAL);
    if (setjmp(e->failure.jump)) return e->failure.status;
    jpeg_create_compress(&e->jpeg);
    e->jpeg.client_data = e;
    e->jpeg.dest = &e->destination;
    write_pixels(&e->jpeg, image, quality);
    return MG_OK;
}

mg_status mg_jpeg_encode(const mg_image *image, int quality, mg_image_file *file) {
    if (image->channels == 4)
        return mg_fail(MG_USAGE, "a JPEG image has no alpha: give 3 channels, or save a PNG");
    encoder e = {.file = file,
                 .destination = {.init_destination = on_begin,
                                 .empty_output_buffer = on_full,
                                 .term_destination = on_end}};
    const mg_status status = encode(&e, image, quality);
    jpeg_destroy_compress(&e.jpeg);
    if (status == MG_OK) return MG_OK;
    mg_free(file->bytes);
    *file = (mg_image_file){0};
    return status;
}
