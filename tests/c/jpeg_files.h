/* JPEG files of every kind, made by libjpeg itself: the library's encoder makes only one. */
#ifndef TESTS_C_JPEG_FILES_H
#define TESTS_C_JPEG_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* needs stdio.h before it */
#include <jpeglib.h>

typedef struct jpeg_kind {
    const char *name;
    int h, v; /* sampling factors of the first component; 0: gray */
    bool progressive;
    bool rgb;    /* stored as red, green and blue */
    int restart; /* blocks (MCUs) between restart markers; 0: none */
    bool apart;  /* a scan for each of three components */
    int colors;  /* JCS_CMYK or JCS_YCCK: four components in these colors; 0: not */
} jpeg_kind;

/* A byte that changes slowly: it differs from pixel to pixel, but little between neighbors. */
static inline uint8_t jpeg_test_byte(int row, int column, int channel) {
    const uint32_t noise =
        (uint32_t)(row * 7919 + column * 104729 + channel * 1299709) * 2654435761u;
    return (uint8_t)(row * 5 + column * (3 + channel) + (int)(noise >> 27));
}

/* The bytes of a file, for free(). */
static inline uint8_t *jpeg_test_file(const jpeg_kind *k, int height, int width, size_t *n) {
    static const jpeg_scan_info scans[] = {
        {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    const int channels = k->colors ? 4 : k->h ? 3 : 1;
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &bytes, &size);
    j.image_height = (JDIMENSION)height;
    j.image_width = (JDIMENSION)width;
    j.input_components = channels;
    j.in_color_space = k->colors ? JCS_CMYK : k->h ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 90, TRUE);
    if (k->rgb) jpeg_set_colorspace(&j, JCS_RGB);
    if (k->colors) jpeg_set_colorspace(&j, (J_COLOR_SPACE)k->colors);
    for (int c = 0; k->h && c < channels; c++) {
        j.comp_info[c].h_samp_factor = c ? 1 : k->h;
        j.comp_info[c].v_samp_factor = c ? 1 : k->v;
    }
    j.restart_interval = (unsigned)k->restart;
    if (k->progressive) jpeg_simple_progression(&j);
    if (k->apart) j.scan_info = scans, j.num_scans = 3;
    jpeg_start_compress(&j, TRUE);
    uint8_t *line = malloc((size_t)(width * channels));
    for (int row = 0; row < height; row++) {
        for (int i = 0; i < width * channels; i++)
            line[i] = jpeg_test_byte(row, i / channels, i % channels);
        jpeg_write_scanlines(&j, &line, 1);
    }
    free(line);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    *n = size;
    return bytes;
}

#endif
