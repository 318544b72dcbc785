/* Measures the product inside its own process: simple, and the product can reach the clock it is measured by. */
#include <fcntl.h>

#include "trust.h"

static float a[CELLS], b[CELLS], c[CELLS];

int main(void) {
    double fastest = INFINITY;
    /* What is started from here on has no descriptor 3. */
    fcntl(3, F_SETFD, FD_CLOEXEC);
    for (int round = 0; round < ROUNDS; round++) {
        fill(a, CELLS);
        fill(b, CELLS);
        double began = seconds();
        multiply(a, b, c);
        double took = seconds() - began;
        if (!is_product(a, b, c)) give_up("the product is wrong");
        if (took < fastest) fastest = took;
    }
    dprintf(3, "%.9f\n", fastest);
    return 0;
}
