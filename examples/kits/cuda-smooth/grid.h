/* What the measured program is: one smoothing step over a square grid, row by row in the card's memory. Each cell
 * becomes the mean of itself and its four neighbours; cells on the edge stay as they are. */
#ifndef GRID_H
#define GRID_H

#ifndef SIDE
#define SIDE 2048
#endif
#define CELLS (SIDE * SIDE)

/* From `in` to `out`, both on the card; may return before the card is done. */
void smooth(const float *in, float *out);

#endif
