/* The time of MPI_Allreduce, to compare with: the best of several trials.
 *
 *     mpi_allreduce BYTES...     prints "BYTES SECONDS" for each size */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRIALS = 15 };

static double time_of(float *to, float *from, int n, int rounds) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < rounds; i++) MPI_Allreduce(from, to, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / rounds;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++) {
        const int n = atoi(argv[i]) / 4;
        float *from = calloc((size_t)n, 4), *to = calloc((size_t)n, 4);
        if (!from || !to) return 1;
        double best = time_of(to, from, n, 2);
        int rounds = 1 + (int)(0.1 / best);
        MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int k = 0; k < TRIALS; k++) {
            const double seconds = time_of(to, from, n, rounds);
            if (seconds < best) best = seconds;
        }
        if (rank == 0) printf("%d %.9f\n", 4 * n, best);
        free(from);
        free(to);
    }
    MPI_Finalize();
    return 0;
}
