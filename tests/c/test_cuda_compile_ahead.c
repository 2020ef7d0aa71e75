/* Compiling kernels in parallel, with the real NVRTC, which needs no GPU. Each test has a disk
 * cache in a new folder. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/log.h"
#include "device/cuda/codegen/codegen.h"
#include <elf.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 6, THREADS = 4, MAJOR = 9, MINOR = 0, ROOM = 1 << 16 };

static char folder[64];
static int compiled; /* kernels compiled so far, counted from the log */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* The log's sink: counts lines about compiled kernels. Several threads may log. */
static void count(const char *line, void *context) {
    (void)context;
    pthread_mutex_lock(&counting);
    compiled += strstr(line, "compiled in") != NULL;
    pthread_mutex_unlock(&counting);
}

static int new_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/mgpu-test-ahead-XXXXXX");
    compiled = 0;
    setenv("MGPU_LOG", "kernels", 1);
    mg_log_set_sink(count, NULL);
    return mkdtemp(folder) ? setenv("MGPU_CACHE", folder, 1) : -1;
}

/* Also checks that the test has freed all memory and closed all files. */
static int remove_folder(void **state) {
    (void)state;
    char command[128];
    mg_error_clear();
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) return -1;
    return mg_alloc_get_stats().live_blocks == 0 && mg_io_open_count() == 0 ? 0 : -1;
}

static void skip_without_compiler(void) {
    char version[16];
    unsetenv("MGPU_CUDA_LIBRARIES");
    if (mg_nvrtc_open(version) == MG_OK) return;
    print_message("skip: %s\n", mg_error_message());
    skip();
}

/* Requests a kernel, which must not fail. */
static mg_cuda_image *want(const char *name, const char *source) {
    mg_cuda_image *image = NULL;
    assert_int_equal(mg_cuda_image_want(name, source, MAJOR, MINOR, &image), MG_OK);
    assert_non_null(image);
    return image;
}

/* Requests a kernel whose source depends on the number. */
static mg_cuda_image *want_number(int number) {
    char source[512];
    snprintf(source, sizeof source,
             "#include \"device/cuda/kernels/kernel.h\"\n"
             "typedef struct params { float *out; long long n; } params;\n"
             "KERNEL(number, params) {\n"
             "    for (long long i = FIRST; i < p.n; i += STEP) p.out[i] = %d;\n"
             "}\n",
             number);
    return want("number", source);
}

static void drop_all(mg_cuda_image **images, int n) {
    for (int i = 0; i < n; i++) mg_cuda_image_drop(images[i]);
}

/* ---- the images ---- */

/* The length of an ELF image: its tables of sections and of program headers lie at its end. */
static size_t bytes_of(const void *data) {
    const Elf64_Ehdr *elf = data;
    assert_memory_equal(elf, "\177ELF", 4);
    const size_t sections = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
    const size_t program = elf->e_phoff + (size_t)elf->e_phnum * elf->e_phentsize;
    return sections > program ? sections : program;
}

/* With one thread and with several, in a new folder each time, the images have the same bytes. */
static void threads_make_what_one_makes(void **state) {
    mg_cuda_image *images[N];
    static char alone[N][ROOM];
    skip_without_compiler();
    for (int threads = 1; threads <= THREADS; threads += THREADS - 1) {
        for (int i = 0; i < N; i++) images[i] = want_number(i);
        assert_int_equal(mg_cuda_images_make(images, N, threads), MG_OK);
        assert_int_equal(compiled, N);
        for (int i = 0; i < N; i++) {
            const void *data = mg_cuda_image_data(images[i]);
            const size_t bytes = bytes_of(data);
            assert_in_range(bytes, 512, ROOM);
            if (threads == 1) memcpy(alone[i], data, bytes);
            assert_memory_equal(alone[i], data, bytes);
            if (i > 0) assert_memory_not_equal(alone[i - 1], data, bytes);
        }
        drop_all(images, N);
        assert_int_equal(remove_folder(state), 0);
        assert_int_equal(new_folder(state), 0);
    }
}

/* Kernels 2 and 4 of 6 have errors. */
static void the_first_wrong_source_is_named_and_the_others_are_made(void **state) {
    (void)state;
    skip_without_compiler();
    for (int threads = 1; threads <= THREADS; threads++) {
        mg_cuda_image *images[N];
        for (int i = 0; i < N; i++)
            images[i] = i == 2   ? want("strange", "int x = first_problem;\n")
                        : i == 4 ? want("stranger", "int x = second_problem;\n")
                                 : want_number(i + 10 * threads);
        assert_int_equal(mg_cuda_images_make(images, N, threads), MG_INTERNAL);
        assert_non_null(strstr(mg_error_message(), "kernel strange "));
        assert_non_null(strstr(mg_error_message(), "identifier \"first_problem\" is undefined"));
        assert_memory_equal(mg_cuda_image_data(images[N - 1]), "\177ELF", 4);
        mg_cuda_image *again = want("strange", "int x = first_problem;\n");
        assert_ptr_not_equal(again, images[2]);
        assert_int_equal(mg_cuda_images_make(&again, 1, threads), MG_INTERNAL);
        mg_cuda_image_drop(again);
        drop_all(images, N);
    }
}

/* ---- sharing ---- */

static void a_source_wanted_twice_is_one_image(void **state) {
    (void)state;
    skip_without_compiler();
    mg_cuda_image *a = want_number(1), *b = want_number(1), *older = NULL;
    assert_ptr_equal(a, b);
    mg_cuda_image *both[] = {a, b};
    assert_int_equal(mg_cuda_images_make(both, 2, THREADS), MG_OK);
    assert_int_equal(compiled, 1);
    mg_cuda_image_drop(a);
    assert_memory_equal(mg_cuda_image_data(b), "\177ELF", 4);
    assert_int_equal(mg_cuda_image_want(mg_cuda_image_name(b), "", 8, 0, &older), MG_OK);
    assert_ptr_not_equal(older, b);
    mg_cuda_image_drop(older);
    mg_cuda_image_drop(b);
}

static void what_is_on_disk_is_not_compiled(void **state) {
    (void)state;
    skip_without_compiler();
    for (int i = 0; i < 3; i++) {
        mg_cuda_image *image = want_number(1);
        assert_int_equal(mg_cuda_images_make(&image, 1, THREADS), MG_OK);
        assert_memory_equal(mg_cuda_image_data(image), "\177ELF", 4);
        mg_cuda_image_drop(image);
        assert_int_equal(compiled, 1);
    }
}

/* An image from the disk may have been compiled for another driver. */
static void what_the_driver_refuses_is_compiled_anew(void **state) {
    (void)state;
    skip_without_compiler();
    mg_cuda_image *image = want_number(1);
    assert_int_equal(mg_cuda_images_make(&image, 1, 1), MG_OK);
    assert_int_equal(mg_cuda_image_again(&image), MG_OK);
    assert_int_equal(compiled, 1); /* this process compiled it: kept */
    mg_cuda_image_drop(image);
    image = want_number(1);
    mg_cuda_image *other = want_number(1);
    assert_int_equal(mg_cuda_image_again(&image), MG_OK);
    assert_int_equal(compiled, 2);
    assert_ptr_not_equal(image, other);
    assert_memory_equal(mg_cuda_image_data(image), "\177ELF", 4);
    mg_cuda_image *third = want_number(1);
    assert_ptr_equal(third, image);
    drop_all((mg_cuda_image *[]){image, other, third}, 3);
}

/* A device's thread: requests all kernels, each thread beginning with another one. */
static void *device(void *first) {
    mg_cuda_image *images[N];
    for (int i = 0; i < N; i++) images[i] = want_number((i + (int)(intptr_t)first) % N);
    const mg_status status = mg_cuda_images_make(images, N, 2);
    int good = status == MG_OK;
    for (int i = 0; i < N && good; i++)
        good = memcmp(mg_cuda_image_data(images[i]), "\177ELF", 4) == 0;
    drop_all(images, N);
    return good ? NULL : "wrong";
}

/* Without a disk cache: each kernel is compiled once only because devices share it in memory. */
static void devices_that_want_the_same_at_once_share_it(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    mg_cuda_image *kept[N];
    skip_without_compiler();
    setenv("MGPU_CACHE", "/dev/null/nowhere", 1);
    for (int i = 0; i < N; i++) kept[i] = want_number(i);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, device, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = "not joined";
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(compiled, N);
    drop_all(kept, N);
}

/* ---- failures, and cache keys ---- */

/* The n-th allocation fails, for n = 1, 2, ... until all succeed. */
static void memory_that_is_short_is_an_error_and_no_leak(void **state) {
    (void)state;
    skip_without_compiler();
    for (int n = 1, failed = 1; failed; n++) {
        mg_cuda_image *image = NULL;
        setenv("MGPU_CACHE", "/dev/null/nowhere", 1);
        mg_alloc_fail_after(n);
        mg_status status = mg_cuda_image_want("empty", "", MAJOR, MINOR, &image);
        if (status == MG_OK) status = mg_cuda_images_make(&image, 1, THREADS);
        mg_alloc_fail_after(0);
        if (status != MG_OK) assert_int_equal(status, MG_OOM);
        failed = status != MG_OK;
        mg_cuda_image_drop(image);
        assert_in_range(n, 1, 40);
    }
}

static void the_key_has_all_that_decides_an_image(void **state) {
    (void)state;
    static const char *const parts[] = {"saxpy",        "NVRTC 1",     "--gpu-architecture=sm_90",
                                        "--fmad=false", "--std=c++17", "-default-device",
                                        "\nthe source"};
    mg_string_buffer key = {0}, other = {0};
    skip_without_compiler();
    assert_int_equal(mg_nvrtc_key(&key, "saxpy", "the source", 9, 0), MG_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(key.s, parts[i]));
    assert_int_equal(mg_nvrtc_key(&other, "saxpy", "the source", 8, 0), MG_OK);
    assert_string_not_equal(key.s, other.s);
    mg_free(key.s);
    mg_free(other.s);
}

#define IN_NEW_FOLDER(test) cmocka_unit_test_setup_teardown(test, new_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_NEW_FOLDER(threads_make_what_one_makes),
        IN_NEW_FOLDER(the_first_wrong_source_is_named_and_the_others_are_made),
        IN_NEW_FOLDER(a_source_wanted_twice_is_one_image),
        IN_NEW_FOLDER(what_is_on_disk_is_not_compiled),
        IN_NEW_FOLDER(what_the_driver_refuses_is_compiled_anew),
        IN_NEW_FOLDER(devices_that_want_the_same_at_once_share_it),
        IN_NEW_FOLDER(memory_that_is_short_is_an_error_and_no_leak),
        IN_NEW_FOLDER(the_key_has_all_that_decides_an_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
