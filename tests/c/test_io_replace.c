/* Replacing files (core/io_replace): the old file stays until the new one is whole, whatever fails
 * and whenever the process is killed; links, modes and owners are kept; nothing is left behind. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* The temporary folder of these tests, emptied before each one. */
static char folder[] = "/tmp/mgpu-test-replace-XXXXXX";

#include "text_files.h"

static mg_status write_text(const char *path, const char *text) {
    return write_bytes(path, text, true);
}

static void assert_contents(const char *path, const char *expected) {
    char text[256] = "";
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, expected);
}

/* The number of files in the folder, hidden ones too. */
static int files_in_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static mode_t mode_of(const char *path) {
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return s.st_mode & 07777;
}

/* ---- the replaced file ---- */

static void links_are_followed_and_stay(void **state) {
    (void)state;
    char target[256];
    mkdir(in_folder("sub"), 0777);
    assert_int_equal(write_text(in_folder("sub/file"), "old"), MG_OK);
    assert_int_equal(symlink("sub/link2", in_folder("link")), 0);
    assert_int_equal(symlink("file", in_folder("sub/link2")), 0);
    assert_int_equal(write_text(in_folder("link"), "new"), MG_OK);
    assert_int_equal(readlink(in_folder("link"), target, sizeof target), 9);
    assert_contents(in_folder("sub/file"), "new");
    /* a link to nothing: its target is made */
    assert_int_equal(symlink(in_folder("sub/made"), in_folder("dangling")), 0);
    assert_int_equal(write_text(in_folder("dangling"), "x"), MG_OK);
    assert_contents(in_folder("sub/made"), "x");
    /* a circle */
    assert_int_equal(symlink("b", in_folder("a")), 0);
    assert_int_equal(symlink("a", in_folder("b")), 0);
    assert_int_equal(write_text(in_folder("a"), "x"), MG_IO);
    assert_non_null(strstr(mg_error_message(), strerror(ELOOP)));
}

static void mode_and_owner_are_kept(void **state) {
    (void)state;
    const char *path = in_folder("private");
    struct stat s;
    assert_int_equal(write_text(path, "old"), MG_OK);
    chmod(path, 0600);
    assert_int_equal(write_text(path, "new"), MG_OK);
    assert_int_equal(mode_of(path), 0600);
    chmod(path, 0640);
    if (geteuid() == 0) assert_int_equal(chown(path, 1234, 5678), 0);
    assert_int_equal(write_text(path, "newer"), MG_OK);
    assert_int_equal(mode_of(path), 0640);
    stat(path, &s);
    if (geteuid() == 0) assert_true(s.st_uid == 1234 && s.st_gid == 5678);
    /* a new file has the mode that the umask says */
    const mode_t old = umask(027);
    assert_int_equal(write_text(in_folder("fresh"), "x"), MG_OK);
    umask(old);
    assert_int_equal(mode_of(in_folder("fresh")), 0640);
}

static void what_must_not_be_replaced_is_refused(void **state) {
    (void)state;
    const char *path = in_folder("readonly");
    assert_int_equal(write_text(path, "old"), MG_OK);
    chmod(path, 0444);
    assert_int_equal(write_text(path, "new"), MG_IO);
    assert_non_null(strstr(mg_error_message(), "the file is read-only"));
    assert_contents(path, "old");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(write_text(in_folder("pipe"), "x"), MG_IO);
    assert_non_null(strstr(mg_error_message(), "not a regular file"));
    mkdir(in_folder("taken"), 0777);
    assert_int_equal(write_text(in_folder("taken"), "x"), MG_IO);
    assert_non_null(strstr(mg_error_message(), strerror(EISDIR)));
}

static void hard_links_part(void **state) {
    (void)state;
    assert_int_equal(write_text(in_folder("one"), "old"), MG_OK);
    assert_int_equal(link(in_folder("one"), in_folder("two")), 0);
    assert_int_equal(write_text(in_folder("one"), "new"), MG_OK);
    assert_contents(in_folder("one"), "new");
    assert_contents(in_folder("two"), "old");
}

/* A link planted under the old kind of temporary name is not followed. */
static void planted_links_are_not_followed(void **state) {
    (void)state;
    char name[64];
    snprintf(name, sizeof name, "model.tmp.%ld", (long)getpid());
    assert_int_equal(write_text(in_folder("victim"), "precious"), MG_OK);
    assert_int_equal(symlink("victim", in_folder(name)), 0);
    assert_int_equal(write_text(in_folder("model"), "x"), MG_OK);
    assert_contents(in_folder("victim"), "precious");
}

/* ---- failures ---- */

/* Replaces "old" by "new" with each file call failing in turn, as `arm` plans it, until one run
 * meets no failure. The file is old or new as a whole, and nothing else is left. */
static void fails_at_every_call(void (*arm)(int64_t n, int error), int error) {
    const char *path = in_folder("survivor");
    assert_int_equal(write_text(path, "old"), MG_OK);
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    int failed = 0, n = 1;
    for (;; n++) {
        assert_int_equal(write_text(path, "old"), MG_OK);
        arm(n, error);
        const mg_status status = write_text(path, "new");
        const bool hit = mg_io_fail_stop();
        assert_int_equal(mg_io_open_count(), 0);
        assert_int_equal(files_in_folder(), 1);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        if (status != MG_OK) {
            failed++;
            assert_int_equal(status, MG_IO);
            assert_non_null(strstr(mg_error_message(), path));
            assert_non_null(strstr(mg_error_message(), strerror(error)));
        }
        const bool written = status == MG_OK || strstr(mg_error_message(), "is written");
        assert_contents(path, written ? "new" : "old");
        if (!hit) break;
    }
    assert_true(n > 10);
    /* EINTR and short writes are repeated; where the system lacks a feature, we do without */
    if (arm == mg_io_fail_after && (error == EINTR || error == MG_IO_SHORT))
        assert_int_equal(failed, 0);
    else if (error == EIO || error == ENOSPC)
        assert_int_equal(failed, n - 1);
}

static void the_old_file_survives_every_failing_call(void **state) {
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EINTR, MG_IO_SHORT, EOPNOTSUPP, EPERM, ENOENT};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fails_at_every_call(mg_io_fail_after, errors[i]);
        fails_at_every_call(mg_io_fail_from, errors[i]);
    }
}

static void a_failed_allocation_leaves_no_file_behind(void **state) {
    (void)state;
    const char *path = in_folder("short");
    assert_int_equal(write_text(path, "old"), MG_OK);
    assert_int_equal(symlink("short", in_folder("link")), 0);
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (int n = 1;; n++) {
        mg_alloc_fail_after(n);
        const mg_status status = write_text(in_folder("link"), "new");
        mg_alloc_fail_after(0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(files_in_folder(), 2);
        if (status == MG_OK) break;
        assert_int_equal(status, MG_OOM);
        assert_contents(path, "old");
    }
}

/* Without O_TMPFILE the file has a name while it is written, and is as safe. */
static void a_file_system_without_unnamed_files_will_do(void **state) {
    (void)state;
    const char *path = in_folder("named");
    assert_int_equal(write_text(path, "old"), MG_OK);
    chmod(path, 0600);
    for (int n = 1; n < 5; n++) {
        mg_io_fail_after(n, EOPNOTSUPP);
        mg_file *f = mg_io_create(path);
        assert_true(mg_io_fail_stop());
        if (!f) continue; /* that call was another one */
        const bool named = files_in_folder() == 2;
        assert_int_equal(mg_io_write(f, "new", 3), MG_OK);
        assert_contents(path, "old");
        assert_int_equal(mg_io_commit(f), MG_OK);
        assert_contents(path, "new");
        assert_int_equal(mode_of(path), 0600);
        assert_int_equal(files_in_folder(), 1);
        if (named) return;
    }
    fail_msg("%s", "no call led to a file with a name");
}

/* Only where the file system can reserve space; one in memory cannot. */
static void a_file_that_cannot_fit_is_refused_before_it_is_written(void **state) {
    (void)state;
    struct statfs s;
    const char *path = in_folder("huge");
    assert_int_equal(write_text(path, "old"), MG_OK);
    mg_file *f = mg_io_create(path);
    assert_non_null(f);
    assert_int_equal(fstatfs(mg_io_descriptor(f), &s), 0);
    const mg_status status = mg_io_reserve(f, INT64_C(1) << 60);
    if (s.f_type == EXT4_SUPER_MAGIC) {
        assert_int_equal(status, MG_IO);
        assert_non_null(strstr(mg_error_message(), path));
    }
    mg_io_close(f);
    assert_contents(path, "old");
    assert_int_equal(files_in_folder(), 1);
}

/* ---- processes ---- */

/* Waits for a child and returns its status. */
static int wait_for(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* A process is killed at each of its file calls; the next save removes its leftovers. Tests both
 * kinds of temporary files: if call number 3, the open, fails with `error`, the temporary file has
 * a name. */
static void kill_at_every_call(bool named) {
    const char *path = in_folder("survivor");
    assert_int_equal(write_text(path, "old"), MG_OK);
    bool done = false;
    int left = 0;
    for (int n = 1; !done; n++) {
        const pid_t child = fork();
        if (child == 0) {
            mg_file *f = NULL;
            if (named) {
                mg_io_fail_after(2, EOPNOTSUPP); /* stat, open */
                f = mg_io_create(path);
                if (!f || files_in_folder() != 2) _exit(2);
            }
            mg_io_fail_after(n, MG_IO_KILL);
            if (!f) f = mg_io_create(path);
            _exit(!f || mg_io_write(f, "new", 3) != MG_OK || mg_io_commit(f) != MG_OK);
        }
        const int status = wait_for(child);
        done = WIFEXITED(status);
        if (done) assert_int_equal(WEXITSTATUS(status), 0);
        char text[8] = "";
        FILE *f = fopen(path, "rb");
        assert_int_equal(fread(text, 1, sizeof text, f), 3);
        fclose(f);
        assert_true(strcmp(text, "old") == 0 || strcmp(text, "new") == 0);
        left += files_in_folder() > 1;
        /* a new process looks for orphans at its first save */
        const pid_t next = fork();
        if (next == 0) _exit(write_text(path, "old") != MG_OK);
        assert_int_equal(wait_for(next), 0);
        assert_int_equal(files_in_folder(), 1);
    }
    assert_true(named ? left > 3 : left >= 1);
}

static void a_killed_process_leaves_the_old_file_and_no_orphan(void **state) {
    (void)state;
    kill_at_every_call(false);
    kill_at_every_call(true);
}

/* The temporary file of a live process stays, as do files of other names. */
static void files_of_live_processes_are_not_swept(void **state) {
    (void)state;
    int go[2], ready[2];
    char byte = 0;
    assert_true(pipe(go) == 0 && pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        mg_io_fail_after(1, EOPNOTSUPP); /* the file is new: stat fails with another errno */
        mg_io_fail_after(2, EOPNOTSUPP);
        mg_file *f = mg_io_create(in_folder("slow"));
        if (write(ready[1], "", 1) != 1 || read(go[0], &byte, 1) != 1) _exit(2);
        _exit(!f || mg_io_write(f, "slow", 4) != MG_OK || mg_io_commit(f) != MG_OK);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(files_in_folder(), 1);
    FILE *other = fopen(in_folder(".mgpulua-not-ours.tmp"), "w");
    fclose(other);
    const pid_t sweeper = fork();
    if (sweeper == 0) _exit(write_text(in_folder("quick"), "x") != MG_OK);
    assert_int_equal(wait_for(sweeper), 0);
    assert_int_equal(files_in_folder(), 3);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(wait_for(child), 0);
    assert_contents(in_folder("slow"), "slow");
    for (int i = 0; i < 2; i++) close(go[i]), close(ready[i]);
}

/* Files of another boot or machine, whose locks may not be seen here, go after an hour. A link with
 * such a name is no temporary file. */
static void files_of_other_boots_are_swept_when_they_are_old(void **state) {
    (void)state;
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 4000}, {.tv_sec = time(NULL) - 4000}};
    const char *gone = in_folder(".mgpulua-ffffffff-0123456789abcdef.tmp");
    const char *young = in_folder(".mgpulua-ffffffff-fedcba9876543210.tmp");
    const char *link = in_folder(".mgpulua-ffffffff-00000000000000ff.tmp");
    fclose(fopen(gone, "w"));
    fclose(fopen(young, "w"));
    assert_int_equal(utimensat(AT_FDCWD, gone, old, 0), 0);
    assert_int_equal(write_text(in_folder("file"), "x"), MG_OK);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(utimensat(AT_FDCWD, in_folder("file"), old, 0), 0);
    assert_int_equal(write_text(in_folder("other"), "x"), MG_OK);
    assert_false(mg_io_exists(gone));
    assert_true(mg_io_exists(young));
    assert_contents(link, "x");
}

/* Two processes save to one path 200 times each; every reader sees one of the two, whole. */
static void two_writers_lose_nothing(void **state) {
    (void)state;
    enum { ROUNDS = 200, BYTES = 20000 };
    const char *path = in_folder("shared");
    static char text[BYTES], seen[BYTES + 1];
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        memset(text, 'a' + i, BYTES);
        for (int round = 0; round < ROUNDS; round++) {
            mg_file *f = mg_io_create(path);
            if (!f || mg_io_write(f, text, BYTES) != MG_OK || mg_io_commit(f) != MG_OK) _exit(1);
        }
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        FILE *f = fopen(path, "rb");
        if (!f) continue;
        assert_int_equal(fread(seen, 1, sizeof seen, f), BYTES);
        fclose(f);
        for (int i = 1; i < BYTES; i++) assert_int_equal(seen[i], seen[0]);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(wait_for(children[i]), 0);
    assert_int_equal(files_in_folder(), 1);
}

/* ---- lock files ---- */

static void a_lock_is_held_by_one_process(void **state) {
    (void)state;
    const char *path = in_folder("lock");
    mg_file *f = mg_io_lock(path);
    assert_non_null(f);
    /* A second process waits; Ctrl-C ends the wait. */
    const pid_t child = fork();
    if (child == 0) {
        mg_interrupt();
        _exit(mg_io_lock(path) || mg_error_code() != MG_INTERRUPTED);
    }
    assert_int_equal(wait_for(child), 0);
    mg_io_close(f);
    assert_int_equal(files_in_folder(), 0);
    /* A killed process loses its lock. */
    const pid_t killed = fork();
    if (killed == 0) {
        mg_io_lock(path);
        raise(SIGKILL);
    }
    wait_for(killed);
    assert_int_equal(files_in_folder(), 1);
    f = mg_io_lock(path);
    assert_non_null(f);
    mg_io_close(f);
    assert_int_equal(files_in_folder(), 0);
    assert_null(mg_io_lock(in_folder("no/lock")));
    assert_int_equal(mg_error_code(), MG_IO);
}

/* Setup of each test: an empty folder. */
static int empty_folder(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s", folder, folder);
    return system(command);
}

#define TEST(name) cmocka_unit_test_setup(name, empty_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(links_are_followed_and_stay),
        TEST(mode_and_owner_are_kept),
        TEST(what_must_not_be_replaced_is_refused),
        TEST(hard_links_part),
        TEST(planted_links_are_not_followed),
        TEST(the_old_file_survives_every_failing_call),
        TEST(a_failed_allocation_leaves_no_file_behind),
        TEST(a_file_system_without_unnamed_files_will_do),
        TEST(a_file_that_cannot_fit_is_refused_before_it_is_written),
        TEST(a_killed_process_leaves_the_old_file_and_no_orphan),
        TEST(files_of_live_processes_are_not_swept),
        TEST(files_of_other_boots_are_swept_when_they_are_old),
        TEST(two_writers_lose_nothing),
        TEST(a_lock_is_held_by_one_process),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
