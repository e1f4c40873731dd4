// The parameter of the kernel `advance`, for the kernel and for the host.
#ifndef MNIST_ADVANCE_H
#define MNIST_ADVANCE_H

#include <cuda_fp16.h>

// Everything that has to happen once all products of a step are done and before the first one of
// the next: four small jobs, each for some of the blocks of one launch.
struct Advance {
  // Gather: the images and labels of the next batch.
  const unsigned char* images;
  const unsigned char* labels;
  const int* order;  // indices of images, batch after batch
  const int* step;
  int batch;
  __half* batch_images;
  unsigned char* batch_labels;
  // Parameters: masters in f32, copies in f16 that the products read. Weights, then the biases of
  // the three layers.
  float* masters;
  __half* copies;
  long long weights;  // how many; a multiple of 8
  int hidden;
  float rate;  // learning rate / batch
  const float* hidden_sums[2];  // of both hidden layers, a row for every kSumRows of the batch
  const float* softmax_sums;  // a row for every kSoftmaxRows
  // The loss of the step that is over.
  const float* row_losses;
  float* losses;
  // Blocks for the first three jobs; one more computes the loss.
  int gather_blocks;
  int weight_blocks;
  int bias_blocks;
};

#endif
