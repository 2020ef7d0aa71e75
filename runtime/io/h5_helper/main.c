/* mgpu-h5: an HDF5 file on standard input becomes records on standard output ("read"), or records
 * become a file ("write"). Started by io/h5.c. */
#include "io/h5_helper/helper.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps standard input into memory, writable and private, because libhdf5 might write to it. */
static void *map_input(size_t *size) {
    struct stat s;
    if (fstat(0, &s) != 0 || !S_ISREG(s.st_mode)) fail("the input is not a regular file");
    *size = (size_t)s.st_size;
    if (*size == 0) fail("the file is empty");
    void *bytes = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0, 0);
    if (bytes == MAP_FAILED) fail("out of memory");
    return bytes;
}

int main(int argc, char **argv) {
    size_t size;
    if (argc != 2 || (strcmp(argv[1], "read") != 0 && strcmp(argv[1], "write") != 0)) {
        fputs("mgpu-h5 is a part of mgpulua, which starts it to read and write HDF5 files\n",
              stderr);
        return 2;
    }
    H5open();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    void *input = map_input(&size);
    sandbox_enter(size);
    if (strcmp(argv[1], "read") == 0)
        read_file(input, size);
    else
        write_file(input, size);
    _exit(0); /* libhdf5's cleanup is not needed */
}
