// The network on a GPU: its forward pass, and training steps that never wait for the host.
#ifndef MNIST_TRAINER_H
#define MNIST_TRAINER_H

#include <cuda_fp16.h>

#include <cstddef>
#include <vector>

#include "cuda_support.h"
#include "gemms.h"
#include "idx.h"
#include "parameters.h"

struct Settings {
  int hidden;
  int batch;
  float rate;  // learning rate
  bool graph;  // steps are replayed as a CUDA graph
  Sums sums;
};

// Masters in f32, which steps change, and copies in f16, which products read. Small steps would be
// lost in f16: near 0.04 its numbers are 3e-5 apart.
struct Parameters {
  Parameters(int hidden, const std::vector<float>& initial)
      : layout{hidden}, masters(initial), copies(initial.size()) {
  }

  const __half* weights(int layer) const {
    return copies.data() + layout.weights(layer);
  }
  const __half* bias(int layer) const {
    return copies.data() + layout.bias(layer);
  }

  ParameterLayout layout;
  DeviceArray<float> masters;
  DeviceArray<__half> copies;
};

// The forward pass for a fixed number of images, with everything that it reads and writes.
struct Forward {
  Forward(Sums sums, const Parameters& parameters, int rows);

  void launch(cudaStream_t stream) const;

  DeviceArray<__half> images;
  DeviceArray<__half> hidden[2];
  DeviceArray<float> logits;
  std::vector<Gemm> gemms;
};

class Trainer {
 public:
  // order: indices of training images, batch after batch, for all steps and one more batch, which
  // is fetched and not used.
  Trainer(
      const Settings& settings, const Dataset& data, const std::vector<float>& initial,
      const std::vector<int>& order);

  // Starts so many steps; `order` must have them.
  void run(int steps);
  // Microseconds for each of so many steps.
  float time(int steps);
  // Until all steps are over. The functions below do so themselves.
  void synchronize() const;

  std::vector<float> losses(int first, int count) const;
  double test_accuracy();
  std::vector<float> parameters() const;

 private:
  void launch_step() const;
  // What the side stream does next begins when the gradient of a layer is there.
  void let_side_have(int layer) const;
  void launch_advance() const;
  void capture();

  Settings settings_;
  Stream stream_;
  Stream side_;  // for what nothing else in the step waits for
  Event ready_[3];  // gradients of the layers
  Event side_done_;
  Event begin_, end_;  // of what is timed
  GraphExec graph_;

  DeviceArray<unsigned char> images_, labels_, batch_labels_, test_labels_;
  DeviceArray<int> order_, step_, correct_;
  Parameters parameters_;
  Forward forward_, test_;

  // By layer: gradients with respect to its sums, and these added up over parts of the batch.
  DeviceArray<__half> gradients_[3];
  DeviceArray<float> bias_sums_[3];
  DeviceArray<float> row_losses_, losses_;
  std::vector<Gemm> input_gradients_;  // of the second and the third layer
  std::vector<Gemm> weight_updates_;
};

#endif
