// gemm_tiles_f64_ccc: D = alpha * A * B + beta * C
//
// For C and C++. gemm_tiles_f64_ccc.cpp has the kernel as machine code for sm_80, sm_90a.
// It needs NVIDIA's driver when it runs, and no CUDA toolkit, not even when it is compiled.
// Made by gemmgen 0.2.0; the command is in that file.
// SPDX-License-Identifier: 0BSD

#ifndef GEMM_TILES_F64_CCC_H
#define GEMM_TILES_F64_CCC_H

// The specification. gemm_tiles_f64_ccc.cpp does not compile with the header of another one.
#define GEMM_TILES_F64_CCC_SPEC 0xa8dab428

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

// Loads the machine code for the current context's device, which otherwise the first launch does.
// For programs that capture a CUDA graph, or that want to know early. Returns what a launch does.
GEMMGEN_API int  // CUDA_SUCCESS, that is 0
gemm_tiles_f64_ccc_load(void);

// Puts the kernel on a stream of the current context, and returns without waiting. Never prints,
// exits or allocates device memory of its own; may be called by several threads at once, in several
// contexts, for several devices.
//
// Matrices are in device memory; leading dimensions count elements. Returns a CUresult. Besides those of cuLaunchKernel:
//     1  CUDA_ERROR_INVALID_VALUE: a negative size, a null matrix, a leading dimension too short, a
//        matrix of more than 2^44 elements, more blocks than a grid may have
//   201  CUDA_ERROR_INVALID_CONTEXT, or 3, CUDA_ERROR_NOT_INITIALIZED: there is no current context
//   209  CUDA_ERROR_NO_BINARY_FOR_GPU: the file has no machine code for this device
//   302  CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: the driver is older than CUDA 12
//   303  CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: there is no driver, libcuda.so.1
//   400  CUDA_ERROR_INVALID_HANDLE: a stream of another context
GEMMGEN_API int  // 0 once the kernel is on its way
gemm_tiles_f64_ccc_launch(
    long long M, long long N, long long K,  // A is M x K, B is K x N, C and D are M x N; may be 0
    double alpha,  // a value, not a pointer
    const double* A, long long lda,  // double, column-major; leading dimension >= M
    const double* B, long long ldb,  // double, column-major; leading dimension >= K
    double beta,  // if it is 0, C is not read, and may be null
    const double* C, long long ldc,  // double, column-major; leading dimension >= M
    double* D, long long ldd,  // as C; may be C, must not overlap A or B
    struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif  // GEMM_TILES_F64_CCC_H
