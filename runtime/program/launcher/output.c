/* --output in a process that mpirun, srun or torchrun started: it drops its own standard output, or
 * puts its rank before each line.
 *
 * The lines go through a child process, not a thread: so they are written even if this process is
 * killed. Our own launcher does the same with the output of its ranks by itself. */
#include "core/limits.h"
#include "program/launcher/lines.h"
#include "program/launcher/options.h"
#include "world/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* In the child: until both pipes end, whatever signals the process group gets meanwhile. */
static void pass_lines(mg_lines *out, mg_lines *err) {
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    while (out->from >= 0 || err->from >= 0) {
        struct pollfd polled[] = {{.fd = out->from, .events = POLLIN},
                                  {.fd = err->from, .events = POLLIN}};
        if (poll(polled, 2, -1) <= 0) continue;
        if (polled[0].revents) mg_lines_pass(out);
        if (polled[1].revents) mg_lines_pass(err);
    }
    _exit(EXIT_SUCCESS);
}

static mg_status prefix_lines(int rank) {
    int out[2], err[2];
    if (pipe(out) != 0 || pipe(err) != 0)
        return mg_fail(MG_IO, "--output prefix: cannot make pipes: %s", mg_reason(errno));
    const pid_t pid = fork();
    if (pid < 0)
        return mg_fail(MG_IO, "--output prefix: cannot start a process: %s", mg_reason(errno));
    if (pid == 0) {
        mg_lines lines[] = {{.from = out[0], .to = STDOUT_FILENO},
                            {.from = err[0], .to = STDERR_FILENO}};
        close(out[1]), close(err[1]);
        for (int i = 0; i < 2; i++)
            snprintf(lines[i].prefix, sizeof lines[i].prefix, "[%d] ", rank);
        pass_lines(&lines[0], &lines[1]);
    }
    dup2(out[1], STDOUT_FILENO), dup2(err[1], STDERR_FILENO);
    for (int i = 0; i < 2; i++) close(out[i]), close(err[i]);
    return MG_OK;
}

static mg_status drop_output(void) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0)
        return mg_fail(MG_IO, "--output rank0: /dev/null: %s", mg_reason(errno));
    close(nowhere);
    return MG_OK;
}

/* Variables that cannot be read are reported when the script starts the world. */
static mg_status join(const mg_launch_options *options) {
    mg_launch launch;
    mg_output output;
    MG_TRY(mg_launcher_output(options->output, &output));
    MG_TRY(mg_launcher_ranks_per_gpu(options->ranks_per_gpu));
    if (mg_launch_find(&launch) != MG_OK || launch.size == 1) {
        mg_error_clear();
        return MG_OK;
    }
    if (output == MG_OUTPUT_PREFIX) return prefix_lines(launch.rank);
    return output == MG_OUTPUT_RANK0 && launch.rank > 0 ? drop_output() : MG_OK;
}

int mg_launcher_join(const mg_command_line *m) {
    if (join(&m->launch) == MG_OK) return EXIT_SUCCESS;
    fprintf(stderr, "mgpulua: %s\n", mg_error_message());
    return EXIT_FAILURE;
}
