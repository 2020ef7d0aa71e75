/* Plug-ins (core/plugin): the folders they are searched in, and the files that are refused: object
 * files that are cut, damaged or hostile, and files that are not object files. */
#define _GNU_SOURCE /* dladdr */
#include "core/plugin.h"
#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/mgpu-plugin-XXXXXX";

/* ---- files ---- */

/* The path of a file in the folder. */
static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* An object file that exports "exported", and imports "imported". Its last byte is the zero behind
 * the first of these names. */
typedef struct object {
    Elf64_Ehdr header;
    Elf64_Shdr section[3]; /* none, symbols, their names */
    Elf64_Sym symbol[3];
    char names[19];
} object;

enum { OBJECT_BYTES = offsetof(object, names) + 19 };

static object make_object(void) {
    object o = {.header = {.e_shoff = offsetof(object, section),
                           .e_shentsize = sizeof(Elf64_Shdr),
                           .e_shnum = 3},
                .names = "\0imported\0exported"};
    memcpy(o.header.e_ident, ELFMAG, SELFMAG);
    o.header.e_ident[EI_CLASS] = ELFCLASS64;
    o.section[1] = (Elf64_Shdr){.sh_type = SHT_DYNSYM,
                                .sh_offset = offsetof(object, symbol),
                                .sh_size = sizeof o.symbol,
                                .sh_link = 2};
    o.section[2] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(object, names), .sh_size = sizeof o.names};
    o.symbol[1] = (Elf64_Sym){.st_name = 1, .st_shndx = SHN_UNDEF};
    o.symbol[2] = (Elf64_Sym){.st_name = 10, .st_shndx = 1};
    return o;
}

/* ---- listing ---- */

/* For mg_plugin_each: adds the name and a space to the text. */
static void add_name(void *text, const char *name) {
    strcat(text, name);
    strcat(text, " ");
}

/* The plug-ins that export the symbol, each followed by a space. */
static const char *exporters(const char *symbol) {
    static char text[512];
    text[0] = 0;
    mg_plugin_each(symbol, add_name, text);
    return text;
}

/* Whether a file with the first n bytes of the object counts as a plug-in that exports it. */
static bool exports(const object *o, size_t n) {
    write_file("mgpu-a.so", o, n);
    const char *found = exporters("exported");
    if (*found) assert_string_equal(found, "a ");
    return *found;
}

static void only_defined_symbols_are_exported(void **state) {
    (void)state;
    const object o = make_object();
    assert_true(exports(&o, OBJECT_BYTES));
    assert_string_equal(exporters("imported"), "");
    assert_string_equal(exporters("export"), "");
    assert_string_equal(exporters("exportedd"), "");
    assert_string_equal(exporters("xported"), "");
}

/* Every part is needed: cut anywhere, it is no plug-in. */
static void a_cut_object_file_is_no_plugin(void **state) {
    (void)state;
    const object o = make_object();
    for (size_t n = 0; n < OBJECT_BYTES; n++) assert_false(exports(&o, n));
}

static void a_damaged_object_file_is_no_plugin(void **state) {
    (void)state;
    const object good = make_object();
    object o;
#define REFUSED(change) o = good, (change), assert_false(exports(&o, OBJECT_BYTES))
    REFUSED(o.header.e_ident[EI_MAG0] = 'x');
    REFUSED(o.header.e_ident[EI_CLASS] = ELFCLASS32);
    REFUSED(o.header.e_shentsize = 40);
    REFUSED(o.header.e_shoff = OBJECT_BYTES - 1);
    REFUSED(o.header.e_shoff = UINT64_MAX);
    REFUSED(o.header.e_shnum = 0);
    REFUSED(o.header.e_shnum = UINT16_MAX);
    REFUSED(o.section[1].sh_type = SHT_SYMTAB);
    REFUSED(o.section[1].sh_link = 3);
    REFUSED(o.section[1].sh_link = UINT32_MAX);
    REFUSED(o.section[1].sh_offset = UINT64_MAX);
    REFUSED(o.section[1].sh_size = UINT64_MAX);
    REFUSED(o.section[1].sh_size = sizeof o.symbol[0] * 3 - 1);
    REFUSED(o.section[2].sh_offset = UINT64_MAX);
    REFUSED(o.section[2].sh_size = UINT64_MAX);
    REFUSED(o.section[2].sh_size--);
    REFUSED(o.section[2].sh_size = 10);
    REFUSED(o.symbol[2].st_name = UINT32_MAX);
    REFUSED(o.symbol[2].st_name = sizeof o.names - 1);
    REFUSED(o.names[17] = 'x');
#undef REFUSED
    o = good;
    assert_true(exports(&o, OBJECT_BYTES));
}

/* Tables that lie between the places where 8-byte numbers may be. */
static void unaligned_tables_are_refused(void **state) {
    (void)state;
    unsigned char bytes[OBJECT_BYTES + 8];
    for (size_t shift = 0; shift <= 8; shift += 4) {
        object o = make_object();
        o.header.e_shoff += shift, o.section[1].sh_offset += shift, o.section[2].sh_offset += shift;
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, &o.header, sizeof o.header);
        memcpy(bytes + sizeof o.header + shift, o.section, OBJECT_BYTES - sizeof o.header);
        write_file("mgpu-a.so", bytes, OBJECT_BYTES + shift);
        assert_string_equal(exporters("exported"), shift == 4 ? "" : "a ");
    }
}

/* No byte of the file can make the search read outside of it: the file ends where its page does,
 * and the next page is not there. */
static void any_byte_of_an_object_file_may_be_wrong(void **state) {
    (void)state;
    static unsigned char page[4096];
    const object good = make_object();
    unsigned char *bytes = page + sizeof page - OBJECT_BYTES;
    bytes -= (uintptr_t)(bytes - page) % 8; /* the tables stay aligned */
    object o = good;
    const uint64_t at = (uint64_t)(bytes - page);
    o.header.e_shoff += at, o.section[1].sh_offset += at, o.section[2].sh_offset += at;
    memcpy(bytes, &o, OBJECT_BYTES);
    memcpy(page, &o.header, sizeof o.header);
    write_file("mgpu-a.so", page, sizeof page);
    assert_string_equal(exporters("exported"), "a ");
    for (size_t i = 0; i < sizeof page; i += i == sizeof o.header ? at - i : 1)
        for (int bit = 0; bit < 8; bit += 7) {
            page[i] ^= (unsigned char)(1 << bit);
            write_file("mgpu-a.so", page, sizeof page);
            page[i] ^= (unsigned char)(1 << bit);
            const char *found = exporters("exported");
            assert_true(!*found || strcmp(found, "a ") == 0);
        }
}

static void only_files_named_as_plugins_count(void **state) {
    (void)state;
    static const char *const names[] = {"mgpu-.so", "mgpu-b.so.0", "mgpub.so", "libmgpu-b.so",
                                        "mgpu-b",   ".so",         "mgpu-b.SO"};
    enum { N = sizeof names / sizeof names[0] };
    const object o = make_object();
    char longest[80] = "mgpu-", too_long[80] = "mgpu-", expected[80];
    memset(longest + 5, 'x', 63);
    memset(too_long + 5, 'y', 64);
    strcat(longest, ".so"), strcat(too_long, ".so");
    for (int i = 0; i < N; i++) write_file(names[i], &o, OBJECT_BYTES);
    write_file(longest, &o, OBJECT_BYTES);
    write_file(too_long, &o, OBJECT_BYTES);
    snprintf(expected, sizeof expected, "%.63s ", longest + 5);
    assert_string_equal(exporters("exported"), expected);
    for (int i = 0; i < N; i++) unlink(path_of(names[i]));
    unlink(path_of(longest)), unlink(path_of(too_long));
}

/* Folders, pipes, links that lead nowhere, and empty files are passed over, without waiting. */
static void what_is_no_file_is_passed_over(void **state) {
    (void)state;
    const object o = make_object();
    assert_int_equal(mkdir(path_of("mgpu-folder.so"), 0700), 0);
    assert_int_equal(mkfifo(path_of("mgpu-pipe.so"), 0600), 0);
    assert_int_equal(symlink("/nowhere/x", path_of("mgpu-link.so")), 0);
    write_file("mgpu-empty.so", "", 0);
    write_file("mgpu-text.so", "once upon a time", 16);
    alarm(60); /* instead of waiting for ever */
    assert_true(exports(&o, OBJECT_BYTES));
    alarm(0);
    rmdir(path_of("mgpu-folder.so"));
    unlink(path_of("mgpu-pipe.so")), unlink(path_of("mgpu-link.so"));
    unlink(path_of("mgpu-empty.so")), unlink(path_of("mgpu-text.so"));
}

/* ---- folders ---- */

/* Sets MGPU_PLUGINS; each %s is replaced by the folder. */
static void set_folders(const char *format) {
    char list[256];
    snprintf(list, sizeof list, format, folder, folder);
    setenv("MGPU_PLUGINS", list, 1);
}

static void folders_are_separated_by_colons(void **state) {
    (void)state;
    const object o = make_object();
    write_file("mgpu-a.so", &o, OBJECT_BYTES);
    set_folders("/nowhere::%s:");
    assert_string_equal(exporters("exported"), "a ");
    set_folders("%s:/nowhere:%s/.");
    assert_string_equal(exporters("exported"), "a a "); /* once per folder */
    set_folders("::/nowhere");
    assert_string_equal(exporters("exported"), "");
    set_folders("");
    assert_string_equal(exporters("exported"), "");
    unsetenv("MGPU_PLUGINS");
    assert_string_equal(exporters("exported"), "");
    set_folders("%s");
}

static void what_cannot_be_loaded_says_why(void **state) {
    (void)state;
    const char *problem = NULL;
    assert_null(mg_plugin_symbol("no-such", "x", &problem));
    assert_string_equal(problem, "it is not beside the library, nor in a folder of MGPU_PLUGINS");
    write_file("mgpu-text.so", "once upon a time", 16);
    assert_null(mg_plugin_symbol("text", "x", &problem));
    assert_non_null(strstr(problem, path_of("mgpu-text.so")));
    unlink(path_of("mgpu-text.so"));
    Dl_info cmocka; /* a library, but no plug-in */
    assert_int_not_equal(dladdr((void *)(intptr_t)_assert_true, &cmocka), 0);
    assert_int_equal(symlink(cmocka.dli_fname, path_of("mgpu-cmocka.so")), 0);
    assert_non_null(mg_plugin_symbol("cmocka", "_assert_true", &problem));
    assert_null(mg_plugin_symbol("cmocka", "no_such_symbol", &problem));
    assert_non_null(strstr(problem, "no_such_symbol"));
    unlink(path_of("mgpu-cmocka.so"));
}

/* A file that may not be executed, or a folder, is no program. */
static void a_program_is_an_executable_file(void **state) {
    (void)state;
    char path[256] = "";
    assert_false(mg_plugin_program("tool", path, sizeof path));
    write_file("mgpu-tool", "#!/bin/sh\n", 10);
    assert_int_equal(chmod(path_of("mgpu-tool"), 0600), 0);
    assert_false(mg_plugin_program("tool", path, sizeof path));
    assert_int_equal(chmod(path_of("mgpu-tool"), 0700), 0);
    assert_true(mg_plugin_program("tool", path, sizeof path));
    assert_string_equal(path, path_of("mgpu-tool"));
    unlink(path_of("mgpu-tool"));
    assert_int_equal(mkdir(path_of("mgpu-tool"), 0700), 0);
    assert_false(mg_plugin_program("tool", path, sizeof path));
    rmdir(path_of("mgpu-tool"));
}

static int open_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    set_folders("%s");
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    unlink(path_of("mgpu-a.so"));
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

#define TEST(name) cmocka_unit_test_teardown(name, remove_file)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(only_defined_symbols_are_exported),       TEST(a_cut_object_file_is_no_plugin),
        TEST(a_damaged_object_file_is_no_plugin),      TEST(unaligned_tables_are_refused),
        TEST(any_byte_of_an_object_file_may_be_wrong), TEST(only_files_named_as_plugins_count),
        TEST(what_is_no_file_is_passed_over),          TEST(folders_are_separated_by_colons),
        TEST(what_cannot_be_loaded_says_why),          TEST(a_program_is_an_executable_file),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
