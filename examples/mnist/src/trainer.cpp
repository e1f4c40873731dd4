#include "trainer.h"

#include "step.h"

Forward::Forward(Sums sums, const Parameters& p, int rows)
    : images(size_t(rows) * kPixels), logits(size_t(rows) * kClassesLd) {
  const int width = p.layout.hidden;
  for (auto& layer : hidden) layer = DeviceArray<__half>(size_t(rows) * width);
  gemms.push_back(hidden_layer(
      sums, rows, kPixels, width, images.data(), p.weights(0), p.bias(0), hidden[0].data()));
  gemms.push_back(hidden_layer(
      sums, rows, width, width, hidden[0].data(), p.weights(1), p.bias(1), hidden[1].data()));
  gemms.push_back(last_layer(
      rows, width, hidden[1].data(), p.weights(2), p.masters.data() + p.layout.bias(2),
      logits.data()));
}

void Forward::launch(cudaStream_t stream) const {
  for (const Gemm& gemm : gemms) gemm.launch(stream);
}

Trainer::Trainer(
    const Settings& settings, const Dataset& data, const std::vector<float>& initial,
    const std::vector<int>& order)
    : settings_(settings),
      stream_(make_stream()),
      side_(make_stream()),
      ready_{make_event(), make_event(), make_event()},
      side_done_(make_event()),
      begin_(make_event(cudaEventDefault)),
      end_(make_event(cudaEventDefault)),
      images_(data.train.images),
      labels_(data.train.labels),
      batch_labels_(settings.batch),
      test_labels_(data.test.labels),
      order_(order),
      step_(1),
      correct_(1),
      parameters_(settings.hidden, initial),
      forward_(settings.sums, parameters_, settings.batch),
      test_(settings.sums, parameters_, data.test.count()),
      row_losses_(settings.batch),
      losses_(order.size() / settings.batch) {
  const int batch = settings.batch, hidden = settings.hidden;
  for (int layer = 0; layer < 3; ++layer) {
    const size_t ld = parameters_.layout.ld(layer);
    const int blocks = layer == 2 ? softmax_blocks(batch) : sum_blocks(batch);
    gradients_[layer] = DeviceArray<__half>(batch * ld);
    bias_sums_[layer] = DeviceArray<float>(blocks * ld);
  }
  for (int layer = 1; layer < 3; ++layer) {
    const ParameterLayout& l = parameters_.layout;
    input_gradients_.push_back(input_gradient(
        settings.sums, batch, hidden, l.outputs(layer), l.ld(layer), gradients_[layer].data(),
        parameters_.weights(layer), forward_.hidden[layer - 1].data(),
        gradients_[layer - 1].data()));
  }
  const __half* const inputs[] = {
      forward_.images.data(), forward_.hidden[0].data(), forward_.hidden[1].data()};
  for (int layer = 0; layer < 3; ++layer) {
    const ParameterLayout& l = parameters_.layout;
    // The gradients are sums over the batch, and become a mean here, in f32. Divided earlier, most
    // of them would be too small for f16.
    weight_updates_.push_back(weight_update(
        batch, l.inputs(layer), l.outputs(layer), l.ld(layer), settings.rate / batch, inputs[layer],
        gradients_[layer].data(), parameters_.masters.data() + l.weights(layer)));
  }

  // All of the above happened on the default stream, which the others do not wait for.
  CUDA(cudaDeviceSynchronize());
  const DeviceArray<unsigned char> test_images(data.test.images);
  CUDA(cudaDeviceSynchronize());
  launch_widen_images(data.test.count(), test_images.data(), test_.images.data(), stream_.get());
  launch_advance();  // from nothing to the first step: copies of weights, the first batch
  synchronize();
}

// A step, as a table of what is computed; h1 and h2 are the hidden layers' outputs, d1 to d3 the
// gradients:
//
//   stream_                                       side_
//   h1 = relu(x W1 + b1)                 GEMM
//   h2 = relu(h1 W2 + b2)                GEMM
//   logits = h2 W3 + b3                  GEMM
//   d3 = softmax - one_hot; losses; sums for b3
//   d2 = h2 > 0 ? d3 W3' : 0             GEMM     W3 -= rate h2' d3    GEMM
//   d1 = h1 > 0 ? d2 W2' : 0             GEMM     W2 -= rate h1' d2    GEMM; sums for b2
//   W1 -= rate x' d1                     GEMM     sums for b1
//   biases, f16 copies of weights, next batch, loss
//
// The sides do not disturb each other: on the right, masters in f32 are written; on the left, the
// copies in f16 are read, which stay as they are until the last line.
void Trainer::launch_step() const {
  const cudaStream_t stream = stream_.get(), side = side_.get();
  const int batch = settings_.batch, hidden = settings_.hidden;

  forward_.launch(stream);
  launch_softmax_gradient(
      batch, forward_.logits.data(), batch_labels_.data(), gradients_[2].data(), row_losses_.data(),
      bias_sums_[2].data(), step_.data(), stream);
  let_side_have(2);
  weight_updates_[2].launch(side);

  input_gradients_[1].launch(stream);
  let_side_have(1);
  weight_updates_[1].launch(side);
  launch_column_sums(batch, hidden, gradients_[1].data(), bias_sums_[1].data(), side);

  input_gradients_[0].launch(stream);
  let_side_have(0);
  launch_column_sums(batch, hidden, gradients_[0].data(), bias_sums_[0].data(), side);
  CUDA(cudaEventRecord(side_done_.get(), side));

  weight_updates_[0].launch(stream);
  CUDA(cudaStreamWaitEvent(stream, side_done_.get(), 0));
  launch_advance();
}

void Trainer::let_side_have(int layer) const {
  CUDA(cudaEventRecord(ready_[layer].get(), stream_.get()));
  CUDA(cudaStreamWaitEvent(side_.get(), ready_[layer].get(), 0));
}

void Trainer::launch_advance() const {
  Advance a{};
  a.images = images_.data();
  a.labels = labels_.data();
  a.order = order_.data();
  a.step = step_.data();
  a.batch = settings_.batch;
  a.batch_images = forward_.images.data();
  a.batch_labels = batch_labels_.data();
  a.masters = parameters_.masters.data();
  a.copies = parameters_.copies.data();
  a.weights = static_cast<long long>(parameters_.layout.all_weights());
  a.hidden = settings_.hidden;
  a.rate = settings_.rate / settings_.batch;
  a.hidden_sums[0] = bias_sums_[0].data();
  a.hidden_sums[1] = bias_sums_[1].data();
  a.softmax_sums = bias_sums_[2].data();
  a.row_losses = row_losses_.data();
  a.losses = losses_.data();
  ::launch_advance(a, stream_.get());
}

void Trainer::capture() {
  CUDA(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    launch_step();
  } catch (...) {
    cudaStreamEndCapture(stream_.get(), &captured);
    const Graph unfinished(captured);
    throw;
  }
  CUDA(cudaStreamEndCapture(stream_.get(), &captured));
  const Graph graph(captured);
  cudaGraphExec_t instance = nullptr;
  CUDA(cudaGraphInstantiate(&instance, graph.get(), 0));
  graph_ = GraphExec(instance);
}

void Trainer::run(int steps) {
  int done = 0;
  if (settings_.graph && !graph_ && steps > 0) {
    launch_step();  // loads the kernels, which must not happen during a capture
    ++done;
    capture();
  }
  for (; done < steps; ++done) {
    if (settings_.graph) {
      CUDA(cudaGraphLaunch(graph_.get(), stream_.get()));
    } else {
      launch_step();
    }
  }
}

float Trainer::time(int steps) {
  CUDA(cudaEventRecord(begin_.get(), stream_.get()));
  run(steps);
  CUDA(cudaEventRecord(end_.get(), stream_.get()));
  CUDA(cudaEventSynchronize(end_.get()));
  float milliseconds = 0;
  CUDA(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
  return milliseconds * 1000 / steps;
}

void Trainer::synchronize() const {
  CUDA(cudaStreamSynchronize(stream_.get()));
}

std::vector<float> Trainer::losses(int first, int count) const {
  synchronize();
  return losses_.read(first, count);
}

double Trainer::test_accuracy() {
  const int count = static_cast<int>(test_labels_.size());
  CUDA(cudaMemsetAsync(correct_.data(), 0, sizeof(int), stream_.get()));
  test_.launch(stream_.get());
  launch_count_correct(
      count, test_.logits.data(), test_labels_.data(), correct_.data(), stream_.get());
  synchronize();
  return static_cast<double>(correct_.read(0, 1)[0]) / count;
}

std::vector<float> Trainer::parameters() const {
  synchronize();
  return parameters_.masters.read(0, parameters_.masters.size());
}
