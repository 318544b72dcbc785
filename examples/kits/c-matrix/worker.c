/* The product's own process: multiplies what is in the shared memory each time it is asked to. */
#include <sys/mman.h>
#include <unistd.h>

#include "matrix.h"

int main(void) {
    char asked;
    float *cells = mmap(0, 3 * CELLS * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, 4, 0);
    if (cells == MAP_FAILED) return 1;
    while (read(0, &asked, 1) == 1) {
        multiply(cells, cells + CELLS, cells + 2 * CELLS);
        if (write(1, "d", 1) != 1) return 1;
    }
    return 0;
}
