// gemm: D = alpha * A * B + beta * C, by the kernel that suits the problem
//
// For C and C++. gemm.cu has the kernels and chooses among them: from the top of this list it
// takes the first whose element types, layout and epilogue are those of the problem, whose smallest
// M, N and K it reaches, and, if the kernel is for aligned operands, whose A and B start, and their
// lines follow each other, at multiples of 16 bytes.
//
//   types layout epilogue    M N K aligned kernel
//   f16   rrr    linear      0 0 0 yes     gemm_mma_f16_rrr_1
//   i8    rrr    linear      0 0 0         gemm_mma_i8_rrr_2
//   f16   rrr    linear_bias 0 0 0         gemm_tiles_f16_rrr_3
//   f64   rrr    linear      0 0 0         gemm_naive_f64_rrr_4
//
// Made by gemmgen 0.2.0:  gen emit --bundle gemm.kernels --name gemm --arch sm_80
// from
//
//   --variant mma --aligned
//   --variant mma --dtype i8
//   --variant tiles --dtype f16 --epilogue linear_bias
//   --variant naive --dtype f64
//
// SPDX-License-Identifier: 0BSD

#ifndef GEMM_H
#define GEMM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

// The specification. gemm.cu does not compile with the header of another one.
#define GEMM_SPEC 0x7cb43906

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

// The element types that there are kernels for: of A and B -> of C, D and the bias.
typedef enum gemm_type {
  GEMM_F16 = 3,  // __half -> __half, sums float
  GEMM_I8 = 9,  // signed char -> int, sums int
  GEMM_F64 = 1,  // double -> double, sums double
} gemm_type;

// The storage orders of A, of B, and of C and D: R is row-major, C is column-major.
typedef enum gemm_layout {
  GEMM_RRR = 0,
  GEMM_RRC = 1,
  GEMM_RCR = 2,
  GEMM_RCC = 3,
  GEMM_CRR = 4,
  GEMM_CRC = 5,
  GEMM_CCR = 6,
  GEMM_CCC = 7,
} gemm_layout;

// What becomes of alpha * A * B + beta * C. The bias has one element for each column of D.
typedef enum gemm_epilogue {
  GEMM_LINEAR = 0,
  GEMM_LINEAR_BIAS = 1,
  GEMM_LINEAR_BIAS_RELU = 2,
  GEMM_LINEAR_BIAS_GELU = 3,
} gemm_epilogue;

// What is to be computed. All matrices are in the memory of the current device; leading dimensions
// count elements.
typedef struct gemm_problem {
  gemm_type type;
  gemm_layout layout;
  gemm_epilogue epilogue;
  long long M, N, K;  // A is M x K, B is K x N, C and D are M x N; each may be 0
  double alpha;  // converted to the type of the sums; where that is int, it has to be one
  const void* A;
  long long lda;
  const void* B;
  long long ldb;
  double beta;  // if it is 0, C is not read, and may be null
  const void* C;
  long long ldc;
  void* D;  // must not overlap A or B; may be C, where ldc is ldd
  long long ldd;
  const void* bias;  // read only by epilogues with a bias
} gemm_problem;

// None of these functions prints, exits or allocates. Several threads may call them at once, for
// several devices, and while a CUDA graph is captured.

// The name of the kernel that gemm_launch would take.
GEMMGEN_API const char*  // null if there is none
gemm_kernel(const gemm_problem* problem);

// Sets *bytes to the size of the workspace that gemm_launch needs on the current device. Returns
// what gemm_launch would return for a problem that it has no kernel for.
GEMMGEN_API cudaError_t gemm_workspace(  // cudaSuccess once *bytes is set
    const gemm_problem* problem, size_t* bytes);

// Queues the kernels on a stream of the current device, and returns without waiting. The workspace is
// device memory at a multiple of 256 bytes, and is free again when the stream has got past the launch;
// it may be null if its size is 0. Launches that may run at the same time need a workspace each.
//
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned, an alpha or beta that is no int where sums are
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: no kernel is for the problem
GEMMGEN_API cudaError_t gemm_launch(
    const gemm_problem* problem,  // read before the function returns
    void* workspace, size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // GEMM_H
