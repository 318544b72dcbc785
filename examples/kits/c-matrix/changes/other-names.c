/* The same product with other names. */
#include "matrix.h"

void multiply(const float *left, const float *right, float *product) {
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            float total = 0;
            for (int inner = 0; inner < SIDE; inner++) {
                total += left[i * SIDE + inner] * right[inner * SIDE + j];
            }
            product[i * SIDE + j] = total;
        }
    }
}
