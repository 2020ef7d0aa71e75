/* A temporary folder for the HDF5 file of a test, and the setup and teardown of a group of them. */
#ifndef MG_TEST_H5_FOLDER_H
#define MG_TEST_H5_FOLDER_H

#include "core/io.h"
#include "core/tensor.h"
#include "device/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/mgpu-h5-XXXXXX";
static char path[64]; /* of the file, which need not be there */

static int open_folder(void **state) {
    (void)state;
    mg_device_set_default(mg_device_find("ref:0"));
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/a.h5", folder);
    return 0;
}

/* Fails if the tests have left another file, an open one, or a tensor. */
static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    if (rmdir(folder) != 0) return -1;
    return mg_io_open_count() == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

#endif
