// gemm_naive_f32_rrr: D = alpha * A * B + beta * C
//
// What gemm_naive_f32_rrr.cu has for C and C++ programs.
// Made by gemmgen 0.2.0; the command is in that file.
// SPDX-License-Identifier: 0BSD

#ifndef GEMM_NAIVE_F32_RRR_H
#define GEMM_NAIVE_F32_RRR_H

#include <cuda_runtime_api.h>

// The specification. gemm_naive_f32_rrr.cu does not compile with the header of another one.
#define GEMM_NAIVE_F32_RRR_SPEC 0x2ec84f0c

// A shared library that hides its symbols exports these if it is compiled with -DGEMMGEN_EXPORTS.
#ifndef GEMMGEN_API
#ifdef GEMMGEN_EXPORTS
#define GEMMGEN_API __attribute__((visibility("default")))
#else
#define GEMMGEN_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Queues the kernel on a stream of the current device, and returns without waiting. Never prints,
// exits or allocates. Several threads may call it at once, for several devices, and while a CUDA
// graph is captured.
//
// M, N and K may be 0. Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a negative size, a null matrix, a leading dimension too
//        short, a matrix of more than 2^44 elements
//     9  cudaErrorInvalidConfiguration: more blocks than a grid may have
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
// Other errors are the CUDA runtime's, such as 222, cudaErrorUnsupportedPtxVersion: a driver that is
// to compile PTX and is older than nvcc.
GEMMGEN_API cudaError_t  // cudaSuccess once the kernel is on its way
gemm_naive_f32_rrr_launch(
    long long M, long long N, long long K,  // A is M x K, B is K x N, C and D are M x N
    float alpha,  // a value, not a pointer
    const float* A, long long lda,  // in device memory, row-major; leading dimension >= K
    const float* B, long long ldb,  // row-major; leading dimensions >= N, in elements
    float beta,  // if it is 0, C is not read, and may be null
    const float* C, long long ldc,  // row-major; leading dimension >= N
    float* D, long long ldd,  // as C; must not overlap A or B; may be C, where ldc is ldd
    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // GEMM_NAIVE_F32_RRR_H
