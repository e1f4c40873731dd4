// Sizes that both the host and the kernels know.
#ifndef MNIST_SHAPE_H
#define MNIST_SHAPE_H

constexpr int kPixels = 784;  // of an image: 28 x 28
constexpr int kClasses = 10;
// Rows of the last layer are 16 elements apart, so that each starts at a multiple of 16 bytes: the
// generated kernels read such operands where they are, without copying them first.
constexpr int kClassesLd = 16;

// Rows that a block of a kernel in step_kernels.cuh takes, and leaves one row of sums for.
constexpr int kSoftmaxRows = 16;
constexpr int kSumRows = 32;

#endif
