// rows: D = alpha * A * B + beta * C
//
// For C and C++. rows.cpp has the kernel as machine code for sm_80.
// It needs NVIDIA's driver when it runs, and no CUDA toolkit, not even when it is compiled.
//
//   compute capability what runs there        driver
//   8.0 to 8.9         machine code for sm_80 CUDA 0.0, newer
//
// Other GPUs have nothing to run: 209. What has been loaded is unloaded when the program ends, or
// when dlclose unloads the shared library that rows.cpp is in; the kernels must have ended.
// Made by gemmgen 0.2.0; the command is in that file.
// SPDX-License-Identifier: 0BSD

#ifndef ROWS_H
#define ROWS_H

#include <stddef.h>

// The specification. rows.cpp does not compile with the header of another one.
#define ROWS_SPEC 0xd3cf1c97

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
rows_load(void);

// Sets *bytes to the size of the workspace that a launch with the same arguments needs, on the
// current context's device. Returns what a launch does.
// It needs none: operands are read where they are, and K is not split.
GEMMGEN_API int  // 0 once *bytes is set
rows_workspace(
    long long M, long long N, long long K,  // sizes, as for the launch
    const void* A, long long lda,  // the pointer's value counts, not what it points to
    const void* B, long long ldb,  // as A's
    size_t* bytes);

// Queues the kernel on a stream of the current context, and returns without waiting. Never prints,
// exits or allocates device memory of its own. Several threads may call it at once, in several
// contexts, for several devices, and while a CUDA graph is captured. Launches that may run at the
// same time need a workspace each.
//
// Matrices are in device memory; leading dimensions count elements. Returns a CUresult; where it is
// one of these, D is as it was:
//     1  CUDA_ERROR_INVALID_VALUE: a negative size, a null matrix, a leading dimension too
//        short, a matrix of more than 2^44 elements, more blocks than a grid may have
//     3  CUDA_ERROR_NOT_INITIALIZED: nobody has called cuInit
//    36  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: a driver older than the table above asks for
//   201  CUDA_ERROR_INVALID_CONTEXT: this thread has no current context. cuCtxSetCurrent, or the
//        runtime's cudaSetDevice, gives it one; none is taken here, as the matrices belong to one
//   209  CUDA_ERROR_NO_BINARY_FOR_GPU: nothing in the file is for this device
//   302  CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: the driver is older than CUDA 12
//   303  CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: there is no driver, libcuda.so.1
//   400  CUDA_ERROR_INVALID_HANDLE: a stream of another context
GEMMGEN_API int  // 0 once the kernel is on its way
rows_launch(
    long long M, long long N, long long K,  // A is M x K, B is K x N, C and D are M x N; may be 0
    float alpha,  // a value, not a pointer
    const void* A, long long lda,  // __nv_bfloat16, row-major; leading dimension >= K
    const void* B, long long ldb,  // __nv_bfloat16, column-major; leading dimension >= K
    float beta,  // if it is 0, C is not read, and may be null
    const void* C, long long ldc,  // __nv_bfloat16, row-major; leading dimension >= N
    void* D, long long ldd,  // as C; must not overlap A or B; may be C, where ldc is ldd
    void* workspace, size_t workspace_bytes,  // device memory at a multiple of 256 bytes; see above
    struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif  // ROWS_H
