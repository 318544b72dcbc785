/* As much of the CUDA runtime as the kit and the GPU check use, on the CPU: one thread does what all threads would. */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__ static
#define __device__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* Each source has its own, which is enough: a kernel and its launch are in one source. */
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim(1), gridDim(1);

namespace stand_in {
template <typename Kernel>
static inline void launch(dim3 grid, dim3 block, Kernel kernel) {
    gridDim = grid;
    blockDim = block;
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++) {
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
            for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++) {
                for (threadIdx.x = 0; threadIdx.x < block.x; threadIdx.x++) kernel();
            }
        }
    }
}
}

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct cudaUUID_t { char bytes[16]; };
struct cudaDeviceProp { char name[256]; cudaUUID_t uuid; };

static inline cudaError_t cudaMalloc(void **at, size_t bytes) {
    *at = malloc(bytes);
    return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemset(void *at, int byte, size_t bytes) {
    memset(at, byte, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline const char *cudaGetErrorString(cudaError_t) { return "the stand-in has no memory"; }
/* The cards that CUDA_VISIBLE_DEVICES names: `GPU-` and a UUID each. */
static inline cudaError_t cudaGetDeviceCount(int *count) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible && *visible ? 1 : 0;
    for (const char *at = visible; *count && *at; at++) *count += *at == ',';
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "stand-in");
    if (!visible || strlen(visible) < 40) return cudaSuccess;
    const char *at = visible + 4;
    for (int byte = 0; byte < 16; byte++) {
        if (*at == '-') at++;
        unsigned value = 0;
        sscanf(at, "%2x", &value);
        properties->uuid.bytes[byte] = (char)value;
        at += 2;
    }
    return cudaSuccess;
}

#endif
