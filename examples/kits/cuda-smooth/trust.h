/* What the measuring program and the check share: input that nobody knows before, and whether a step of it is right. */
#ifndef TRUST_H
#define TRUST_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "grid.h"

static inline void give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Every answer of the card is looked at: a kernel that did not run would be the fastest of all. */
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t answer = (call);                                                                                   \
        if (answer != cudaSuccess) give_up(#call, cudaGetErrorString(answer));                                         \
    } while (0)

/* Numbers from -1 to 1, other ones each time: a result cannot be kept from the last run. */
static inline void fill(float *cells) {
    static unsigned char bytes[CELLS];
    for (size_t taken = 0; taken < CELLS;) {
        ssize_t got = getrandom(bytes + taken, CELLS - taken, 0);
        if (got <= 0) give_up("getrandom", "no random numbers");
        taken += (size_t)got;
    }
    for (int at = 0; at < CELLS; at++) cells[at] = ((int)bytes[at] - 128) / 128.0f;
}

/* The first cell that is not what one step makes of `in`; -1 where all are. */
static inline int wrong_cell(const float *in, const float *out) {
    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            int cell = row * SIDE + column;
            float expected = in[cell];
            if (row > 0 && column > 0 && row < SIDE - 1 && column < SIDE - 1) {
                expected = (in[cell] + in[cell - 1] + in[cell + 1] + in[cell - SIDE] + in[cell + SIDE]) * 0.2f;
            }
            if (!(fabsf(out[cell] - expected) < 1e-5f)) return cell;
        }
    }
    return -1;
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

#endif
