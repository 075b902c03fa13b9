/* p50 of an all-reduce (sum of floats, in place) over all processes, per size; rank 0 prints a JSON line each.
 * Compiled and started by tables/allreduce.mjs where an MPI is installed:
 *   mpicc -O2 mpi-allreduce.c -o mpi-allreduce && mpirun -np 2 ./mpi-allreduce BYTES ROUNDS [BYTES ROUNDS ...] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i + 1 < argc; i += 2) {
    const int count = atoi(argv[i]) / (int)sizeof(float), rounds = atoi(argv[i + 1]);
    float* data = calloc((size_t)count, sizeof(float));
    double* seconds = calloc((size_t)rounds, sizeof(double));
    if (data == NULL || seconds == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      seconds[round] = MPI_Wtime() - start;
    }
    qsort(seconds, (size_t)rounds, sizeof(double), ascending);
    if (rank == 0) printf("{\"bytes\":%d,\"p50_us\":%.3f}\n", count * (int)sizeof(float), seconds[rounds / 2] * 1e6);
    free(data);
    free(seconds);
  }
  MPI_Finalize();
  return 0;
}
