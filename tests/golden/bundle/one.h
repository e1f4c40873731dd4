// one: D = alpha * A * B + beta * C, by the kernel that suits the problem
//
// For C and C++. one.cu has the kernels and chooses among them: from the top of this list it
// takes the first whose element types, layout and epilogue are those of the problem, whose smallest
// M, N and K it reaches, and, if the kernel is for aligned operands, whose A and B start, and their
// lines follow each other, at multiples of 16 bytes.
//
//   types layout epilogue M N K aligned kernel
//   f32   rrr    linear   0 0 0         one_naive_f32_rrr_1
//
// Made by gemmgen 0.2.0:  gen emit --bundle one.kernels --name one --arch sm_80
// from
//
//   --variant naive
//
// SPDX-License-Identifier: 0BSD

#ifndef ONE_H
#define ONE_H

#include <cuda_runtime_api.h>
#include <stddef.h>

// The specification. one.cu does not compile with the header of another one.
#define ONE_SPEC 0x428484a5

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
typedef enum one_type {
  ONE_F32 = 0,  // float -> float, sums float
} one_type;

// The storage orders of A, of B, and of C and D: R is row-major, C is column-major.
typedef enum one_layout {
  ONE_RRR = 0,
  ONE_RRC = 1,
  ONE_RCR = 2,
  ONE_RCC = 3,
  ONE_CRR = 4,
  ONE_CRC = 5,
  ONE_CCR = 6,
  ONE_CCC = 7,
} one_layout;

// What becomes of alpha * A * B + beta * C. The bias has one element for each column of D.
typedef enum one_epilogue {
  ONE_LINEAR = 0,
  ONE_LINEAR_BIAS = 1,
  ONE_LINEAR_BIAS_RELU = 2,
  ONE_LINEAR_BIAS_GELU = 3,
} one_epilogue;

// What is to be computed. All matrices are in the memory of the current device; leading dimensions
// count elements.
typedef struct one_problem {
  one_type type;
  one_layout layout;
  one_epilogue epilogue;
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
} one_problem;

// None of these functions prints, exits or allocates. Several threads may call them at once, for
// several devices, and while a CUDA graph is captured.

// The name of the kernel that one_launch would take.
GEMMGEN_API const char*  // null if there is none
one_kernel(const one_problem* problem);

// Sets *bytes to the size of the workspace that one_launch needs on the current device. Returns
// what one_launch would return for a problem that it has no kernel for.
GEMMGEN_API cudaError_t one_workspace(  // cudaSuccess once *bytes is set
    const one_problem* problem, size_t* bytes);

// Queues the kernels on a stream of the current device, and returns without waiting. The workspace is
// device memory at a multiple of 256 bytes, and is free again when the stream has got past the launch;
// it may be null if its size is 0. Launches that may run at the same time need a workspace each.
//
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a negative size, a null matrix, a leading dimension too
//        short, a matrix of more than 2^44 elements
//     9  cudaErrorInvalidConfiguration: more blocks than a grid may have
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: no kernel is for the problem
GEMMGEN_API cudaError_t one_launch(
    const one_problem* problem,  // read before the function returns
    void* workspace, size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // ONE_H
