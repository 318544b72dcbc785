/* What the measured program is: c = a * b for square matrices, row by row in memory. */
#ifndef MATRIX_H
#define MATRIX_H

#define SIDE 128
#define CELLS (SIDE * SIDE)

void multiply(const float *a, const float *b, float *c);

#endif
