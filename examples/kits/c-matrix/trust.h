/* What the measuring programs share: input that nobody knows before, and whether a product of it is right. */
#ifndef TRUST_H
#define TRUST_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "matrix.h"

/* Each measured run reports the fastest of these: the others only say that something else was in the way. */
#define ROUNDS 5

static inline void give_up(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

/* Numbers from -1 to 1, other ones each time: a product cannot be kept from the last run. */
static inline void fill(float *cells, int count) {
    static unsigned char bytes[CELLS];
    for (int taken = 0; taken < count;) {
        ssize_t got = getrandom(bytes + taken, (size_t)(count - taken), 0);
        if (got <= 0) give_up("no random numbers");
        taken += (int)got;
    }
    for (int at = 0; at < count; at++) cells[at] = ((int)bytes[at] - 128) / 128.0f;
}

/* Whether c = a * b, told by one random direction: c x = a (b x). It costs a small part of the product itself. */
static inline int is_product(const float *a, const float *b, const float *c) {
    static float direction[SIDE];
    double through_b[SIDE];
    fill(direction, SIDE);
    for (int row = 0; row < SIDE; row++) {
        through_b[row] = 0;
        for (int k = 0; k < SIDE; k++) through_b[row] += (double)b[row * SIDE + k] * direction[k];
    }
    for (int row = 0; row < SIDE; row++) {
        double expected = 0, found = 0;
        for (int k = 0; k < SIDE; k++) {
            expected += a[row * SIDE + k] * through_b[k];
            found += (double)c[row * SIDE + k] * direction[k];
        }
        if (!(fabs(expected - found) < 0.01)) return 0;
    }
    return 1;
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

#endif
