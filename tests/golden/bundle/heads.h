// heads: D = alpha * A * B + beta * C, by the kernel that suits the problem
//
// For C and C++. heads.cu has the kernels and chooses among them: from the top of this list it
// takes the first whose element types, layout and epilogue are those of the problem, whose smallest
// M, N and K it reaches, and, if the kernel is for aligned operands, whose A and B start, and their
// lines follow each other, at multiples of 16 bytes. Batches of one product are for all kernels.
//
//   types layout epilogue    M N K aligned batch kernel
//   f16   rrr    gated       0 0 0 yes     any   heads_mma_f16_rrr_1
//   f32   rrr    linear_bias 0 0 0         any   heads_naive_f32_rrr_2
//   f16   rrr    linear      0 0 0         1     heads_naive_f16_rrr_3
//   f64   rrr    masked      0 0 0         1     heads_naive_f64_rrr_4
//
// Made by gemmgen 0.2.0:  gen emit --bundle heads.kernels --name heads --arch sm_80
// from
//
//   --variant mma --batched --epilogue 'silu(x) * up[row, col] + slope * rest[row, col] where up=f16[row, col], slope=scalar' --as gated --aligned
//   --variant naive --batched --epilogue linear_bias
//   --variant naive --dtype f16
//   --variant naive --dtype f64 --epilogue 'row >= col ? gelu(x) : 0' --as masked
//
// SPDX-License-Identifier: 0BSD

#ifndef HEADS_H
#define HEADS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

// The specification. heads.cu does not compile with the header of another one.
#define HEADS_SPEC 0x6c050aab

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
typedef enum heads_type {
  HEADS_F16 = 3,  // __half -> __half, sums float
  HEADS_F32 = 0,  // float -> float, sums float
  HEADS_F64 = 1,  // double -> double, sums double
} heads_type;

// The storage orders of A, of B, and of C and D: R is row-major, C is column-major.
typedef enum heads_layout {
  HEADS_RRR = 0,
  HEADS_RRC = 1,
  HEADS_RCR = 2,
  HEADS_RCC = 3,
  HEADS_CRR = 4,
  HEADS_CRC = 5,
  HEADS_CCR = 6,
  HEADS_CCC = 7,
} heads_layout;

// What becomes of alpha * A * B + beta * C. The bias has one element for each column of D.
typedef enum heads_epilogue {
  HEADS_LINEAR = 0,
  HEADS_LINEAR_BIAS = 1,
  HEADS_LINEAR_BIAS_RELU = 2,
  HEADS_LINEAR_BIAS_GELU = 3,
  HEADS_GATED = 38544609,  // silu(x) * up[row, col] + slope * rest[row, col], where x is that
  HEADS_MASKED = 58009005,  // row >= col ? gelu(x) : 0, where x is that
} heads_epilogue;

// What is to be computed. All matrices are in the memory of the current device; leading dimensions
// and strides count elements. Product i of a batch has the matrices at A + i * stride_a, and so on.
typedef struct heads_problem {
  heads_type type;
  heads_layout layout;
  heads_epilogue epilogue;
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
  long long batch;  // how many products: 0 for none, 1 for one, whose strides do not count
  long long stride_a, stride_b, stride_c;  // 0: all products have the same matrix
  long long stride_d;  // such that products do not overlap
  struct {  // read only by HEADS_GATED
    const void* up;  // __half: M x N, in the order of D
    long long ld_up;
    double slope;  // converted as alpha is
    const void* rest;  // __half: M x N, in the order of D
    long long ld_rest;
  } gated;
} heads_problem;

// None of these functions prints, exits or allocates. Several threads may call them at once, for
// several devices, and while a CUDA graph is captured.

// The name of the kernel that heads_launch would take.
GEMMGEN_API const char*  // null if there is none
heads_kernel(const heads_problem* problem);

// Sets *bytes to the size of the workspace that heads_launch needs on the current device. Returns
// what heads_launch would return for a problem that it has no kernel for.
GEMMGEN_API cudaError_t heads_workspace(  // cudaSuccess once *bytes is set
    const heads_problem* problem, size_t* bytes);

// Queues the kernels on a stream of the current device, and returns without waiting. The workspace is
// device memory at a multiple of 256 bytes, and is free again when the stream has got past the launch;
// it may be null if its size is 0. Launches that may run at the same time need a workspace each.
//
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: no kernel is for the problem
GEMMGEN_API cudaError_t heads_launch(
    const heads_problem* problem,  // read before the function returns
    void* workspace, size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // HEADS_H
