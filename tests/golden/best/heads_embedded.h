// heads: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// For C and C++. heads.cpp has the kernels as machine code for sm_86.
// It needs NVIDIA's driver when it runs, and no CUDA toolkit, not even when it is compiled.
//
//   compute capability what runs there        driver
//   8.6 to 8.9         machine code for sm_86 CUDA 0.0, newer
//
// Other GPUs have nothing to run: 209. What has been loaded is unloaded when the program ends, or
// when dlclose unloads the shared library that heads.cpp is in; the kernels must have ended.
// Made by gemmgen 0.2.0; the command is in that file.
// SPDX-License-Identifier: 0BSD

#ifndef HEADS_H
#define HEADS_H

#include <stddef.h>

// The specification. heads.cpp does not compile with the header of another one.
#define HEADS_SPEC 0xf03929f2

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

struct CUstream_st;  // CUstream and cudaStream_t are pointers to it

// Loads the code for the current context's device, which otherwise the first launch does. For programs
// that want to know early whether they can run. Returns what a launch does.
GEMMGEN_API int  // CUDA_SUCCESS, that is 0
heads_load(void);

// Sets *bytes to the size of the workspace that a launch with the same arguments needs, on the
// current context's device. Returns what a launch does.
// It needs none: operands are read where they are, and K is not split.
GEMMGEN_API int  // 0 once *bytes is set
heads_workspace(
    long long M, long long N, long long K,  // sizes, as for the launch
    long long batch,  // how many products; may be 0
    const float* A, long long lda,  // the pointer's value counts, not what it points to
    long long stride_a,  // from A of one product to that of the next; 0: they have the same
    const float* B, long long ldb,  // as A's
    long long stride_b,  // from B of one product to that of the next; 0: they have the same
    size_t* bytes);

// Queues the kernels on a stream of the current context, and returns without waiting. Never prints,
// exits or allocates device memory of its own. Several threads may call it at once, in several
// contexts, for several devices, and while a CUDA graph is captured. Launches that may run at the
// same time need a workspace each.
//
// Matrices are in device memory; leading dimensions count elements. Returns a CUresult; where it is
// one of these, D is as it was:
//     1  CUDA_ERROR_INVALID_VALUE: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned, 2^31 blocks or more, or more than 2^31 - 2^16 work tiles,
//        a negative stride, products of D that overlap
//     3  CUDA_ERROR_NOT_INITIALIZED: nobody has called cuInit
//    36  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: a driver older than the table above asks for
//   201  CUDA_ERROR_INVALID_CONTEXT: this thread has no current context. cuCtxSetCurrent, or the
//        runtime's cudaSetDevice, gives it one; none is taken here, as the matrices belong to one
//   209  CUDA_ERROR_NO_BINARY_FOR_GPU: nothing in the file is for this device
//   302  CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: the driver is older than CUDA 12
//   303  CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: there is no driver, libcuda.so.1
//   400  CUDA_ERROR_INVALID_HANDLE: a stream of another context
GEMMGEN_API int  // 0 once the kernels are on their way
heads_launch(
    long long M, long long N, long long K,  // A is M x K, B is K x N, C and D are M x N; may be 0
    long long batch,  // how many products; may be 0
    float alpha,  // a value, not a pointer
    const float* A, long long lda,  // float, row-major; leading dimension >= K
    long long stride_a,  // from A of one product to that of the next; 0: they have the same
    const float* B, long long ldb,  // float, row-major; leading dimension >= N
    long long stride_b,  // from B of one product to that of the next; 0: they have the same
    float beta,  // if it is 0, C is not read, and may be null
    const float* C, long long ldc,  // float, row-major; leading dimension >= N
    long long stride_c,  // from C of one product to that of the next; 0: they have the same
    float* D, long long ldd,  // as C; must not overlap A or B; may be C, where ldc is ldd
    long long stride_d,  // from D of one product to that of the next; at least what one takes
    const void* up, long long ld_up,  // __half, row-major; leading dimension >= N
    float slope,  // a value, not a pointer
    const float* rest, long long ld_rest,  // float, row-major; leading dimension >= N
    void* workspace, size_t workspace_bytes,  // device memory at a multiple of 256 bytes; see above
    struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif  // HEADS_H
