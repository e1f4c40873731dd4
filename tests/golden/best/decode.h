// decode: D = alpha * A * B + beta * C
//
// What decode.cu has for C and C++ programs.
// Made by gemmgen 0.2.0; the command is in that file.
// SPDX-License-Identifier: 0BSD

#ifndef DECODE_H
#define DECODE_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
#include <cuda_fp16.h>
typedef __half gemmgen_f16;
#else  // C has no such type: any pointer to such elements will do
typedef void gemmgen_f16;
#endif

// The specification. decode.cu does not compile with the header of another one.
#define DECODE_SPEC 0x09007a5e

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

// Sets *bytes to the size of the workspace that a launch with the same arguments needs, on the
// current device, or to 0 where it returns what the launch does for these, 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes,
// and partial sums.
GEMMGEN_API cudaError_t  // cudaSuccess once *bytes is set
decode_workspace(
    long long M, long long N, long long K,  // sizes, as for the launch
    const gemmgen_f16* A, long long lda,  // the pointer's value counts, not what it points to
    const gemmgen_f16* B, long long ldb,  // as A's
    size_t* bytes);

// Queues the kernels on a stream of the current device, and returns without waiting. Never prints,
// exits or allocates. Several threads may call it at once, for several devices, and while a CUDA
// graph is captured. Launches that may run at the same time need a workspace each.
//
// M, N and K may be 0. Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU of none of these generations, or older, or with less
//        shared memory for a block: H200 SXM 141 GB
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: the driver does not know the TMA: it is older than CUDA 12
// Other errors are the CUDA runtime's, such as 222, cudaErrorUnsupportedPtxVersion: a driver that is
// to compile PTX and is older than nvcc.
GEMMGEN_API cudaError_t  // cudaSuccess once the kernels are on their way
decode_launch(
    long long M, long long N, long long K,  // A is M x K, B is K x N, C and D are M x N
    float alpha,  // a value, not a pointer
    const gemmgen_f16* A, long long lda,  // in device memory, row-major; leading dimension >= K
    const gemmgen_f16* B, long long ldb,  // column-major; leading dimensions >= K, in elements
    float beta,  // if it is 0, C is not read, and may be null
    const gemmgen_f16* C, long long ldc,  // column-major; leading dimension >= M
    gemmgen_f16* D, long long ldd,  // as C; must not overlap A or B; may be C, where ldc is ldd
    void* workspace, size_t workspace_bytes,  // device memory at a multiple of 256 bytes; see above
    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // DECODE_H
