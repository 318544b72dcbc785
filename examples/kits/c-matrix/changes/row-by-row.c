/* Goes through b row by row, so that memory is read in order and the additions do not wait for each other. */
#include "matrix.h"

void multiply(const float *a, const float *b, float *c) {
    for (int row = 0; row < SIDE; row++) {
        float *out = c + row * SIDE;
        for (int column = 0; column < SIDE; column++) {
            out[column] = 0;
        }
        for (int k = 0; k < SIDE; k++) {
            const float factor = a[row * SIDE + k];
            const float *in = b + k * SIDE;
            for (int column = 0; column < SIDE; column++) {
                out[column] += factor * in[column];
            }
        }
    }
}
