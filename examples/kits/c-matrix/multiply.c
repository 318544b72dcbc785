/* The product as it is written on paper: a change may do better here, and nowhere else. */
#include "matrix.h"

void multiply(const float *a, const float *b, float *c) {
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
