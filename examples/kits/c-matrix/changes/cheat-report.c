/* A cheat: reports a time of its own, and leaves the measuring program to report the true one as well. */
#include <unistd.h>

#include "matrix.h"

void multiply(const float *a, const float *b, float *c) {
    static int reported;
    if (!reported++ && write(3, "0.0001\n", 7) < 0) {
        /* Descriptor 3 is not here: nothing to cheat with. */
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
