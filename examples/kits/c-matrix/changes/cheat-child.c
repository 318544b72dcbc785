/* A cheat: a child of the measured process reports a time, where it has inherited descriptor 3. */
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

void multiply(const float *a, const float *b, float *c) {
    static int reported;
    if (!reported++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(write(3, "0.0001\n", 7) < 0);
        }
        waitpid(child, 0, 0);
    }
    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++) {
                sum += a[row * SIDE + k] * b[k * SIDE + column];
            }
            c[row * SIDE + column] = sum;
        }
    }
}
