/* Correct is what multiplies as it is written on paper, up to rounding. */
#include "trust.h"

static float a[CELLS], b[CELLS], c[CELLS];

int main(void) {
    fill(a, CELLS);
    fill(b, CELLS);
    multiply(a, b, c);
    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) sum += (double)a[row * SIDE + k] * b[k * SIDE + column];
            if (!(fabs(sum - c[row * SIDE + column]) < 0.001)) {
                printf("row %d, column %d: %f, expected %f\n", row, column, c[row * SIDE + column], sum);
                return 1;
            }
        }
    }
    return 0;
}
