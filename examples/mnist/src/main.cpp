// Trains a network on MNIST; see ../README.md.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "idx.h"
#include "options.h"
#include "parameters.h"
#include "random.h"
#include "trainer.h"

namespace {

enum ExitCode { kDone = 0, kDiverged = 1, kWrongUsage = 2, kWrongFiles = 3, kCudaFailed = 4 };

// --bench: steps before measuring, and what is measured.
constexpr int kWarmUp = 300, kRounds = 21, kStepsPerRound = 200;

struct Timing {
  float median = 0, least = 0, most = 0;  // microseconds a step
};

Timing measure(Trainer& trainer) {
  trainer.run(kWarmUp);
  std::vector<float> times;
  for (int round = 0; round < kRounds; ++round) times.push_back(trainer.time(kStepsPerRound));
  std::sort(times.begin(), times.end());
  return {times[kRounds / 2], times.front(), times.back()};
}

// The batches of `steps` steps. What is left of an epoch after its last whole batch is left out.
std::vector<int> make_order(int images, int batch, long long steps, uint64_t seed) {
  const int per_epoch = images / batch;
  std::vector<int> order;
  order.reserve(static_cast<size_t>(steps) * batch);
  for (long long first = 0, epoch = 0; first < steps; first += per_epoch, ++epoch) {
    const std::vector<int> all = shuffled(images, seed, static_cast<uint64_t>(epoch));
    const long long taken = std::min<long long>(steps - first, per_epoch) * batch;
    order.insert(order.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  return order;
}

class TextFile {
 public:
  explicit TextFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")) {
    if (!file_) throw DataError(path + ": cannot be written");
  }
  ~TextFile() {
    if (file_) std::fclose(file_);
  }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  FILE* get() const {
    return file_;
  }
  void close() {
    FILE* const file = file_;
    file_ = nullptr;
    const bool failed = std::ferror(file) != 0;
    if (std::fclose(file) != 0 || failed) throw DataError(path_ + ": cannot be written");
  }

 private:
  std::string path_;
  FILE* file_;
};

void write_losses(const std::string& path, const std::vector<float>& losses) {
  TextFile file(path);
  std::fprintf(file.get(), "step,loss\n");
  for (size_t i = 0; i < losses.size(); ++i) std::fprintf(file.get(), "%zu,%.9g\n", i, losses[i]);
  file.close();
}

struct Result {
  int steps = 0;
  double loss = 0, accuracy = 0;
  Timing timing;
};

void write_json(
    const std::string& path, const Options& o, const std::string& gpu, const Result& r) {
  TextFile file(path);
  std::fprintf(
      file.get(),
      "{\"gpu\": \"%s\", \"hidden\": %d, \"batch\": %d, \"steps\": %d, \"accumulate\": \"%s\", "
      "\"graph\": %s,\n \"loss\": %.9g, \"accuracy\": %.9g",
      gpu.c_str(), o.hidden, o.batch, r.steps, o.sums == Sums::kF16 ? "f16" : "f32",
      o.graph ? "true" : "false", r.loss, r.accuracy);
  if (o.bench) {
    std::fprintf(
        file.get(), ",\n \"step_us\": %.3f, \"step_us_min\": %.3f, \"step_us_max\": %.3f",
        r.timing.median, r.timing.least, r.timing.most);
  }
  std::fprintf(file.get(), "}\n");
  file.close();
}

// Trains epoch by epoch and prints how it goes. Stops where the loss is no number.
Result train(Trainer& trainer, const Options& o, int steps, int per_epoch) {
  Result result;
  for (int epoch = 1; result.steps < steps; ++epoch) {
    const int count = std::min(per_epoch, steps - result.steps);
    const float microseconds = trainer.time(count);
    const std::vector<float> losses = trainer.losses(result.steps, count);
    result.loss = std::accumulate(losses.begin(), losses.end(), 0.0) / count;
    result.accuracy = trainer.test_accuracy();
    result.steps += count;
    std::printf(
        "epoch %2d  loss %.4f  test accuracy %.2f %%  %.1f us/step\n", epoch, result.loss,
        100 * result.accuracy, microseconds);
    std::fflush(stdout);
    if (!std::isfinite(result.loss)) break;
  }
  if (!o.losses.empty()) write_losses(o.losses, trainer.losses(0, result.steps));
  if (!o.weights_out.empty()) write_parameters(o.weights_out, o.hidden, trainer.parameters());
  return result;
}

std::string current_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    throw CudaError(std::string("there is no GPU to train on: ") + cudaGetErrorString(error));
  }
  int device = 0;
  CUDA(cudaGetDevice(&device));
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

int run(const Options& o) {
  const Dataset data = read_dataset(o.data);
  if (o.check_data) {
    std::printf("%d training and %d test images: ok\n", data.train.count(), data.test.count());
    return kDone;
  }
  if (o.batch > data.train.count()) {
    throw UsageError(
        "--batch is larger than the " + std::to_string(data.train.count()) + " images");
  }
  const std::string gpu = current_gpu();

  const std::vector<float> initial = o.weights_in.empty() ? initial_parameters(o.hidden, o.seed)
                                                          : read_parameters(o.weights_in, o.hidden);
  const int per_epoch = data.train.count() / o.batch;
  const long long wanted = o.steps > 0 ? o.steps : static_cast<long long>(o.epochs) * per_epoch;
  const long long measured =
      o.bench ? kWarmUp + static_cast<long long>(kRounds) * kStepsPerRound : 0;
  const long long all = wanted + measured + 1;  // a step fetches the next one's batch
  if (all * o.batch > 2'000'000'000) throw UsageError("that are too many steps");
  const std::vector<int> order = make_order(data.train.count(), o.batch, all, o.seed);

  Trainer trainer({o.hidden, o.batch, o.rate, o.graph, o.sums}, data, initial, order);
  std::printf(
      "%s: 784 -> %d -> %d -> 10, batch %d, sums in %s%s\n", gpu.c_str(), o.hidden, o.hidden,
      o.batch, o.sums == Sums::kF16 ? "f16" : "f32", o.graph ? "" : ", no graph");
  Result result = train(trainer, o, static_cast<int>(wanted), per_epoch);
  if (!std::isfinite(result.loss)) {
    std::fprintf(stderr, "error: the loss is no number any more; try a smaller --lr\n");
    return kDiverged;
  }
  if (o.bench) {
    result.timing = measure(trainer);
    std::printf(
        "a step takes %.2f us (median of %d times %d steps; %.2f to %.2f)\n", result.timing.median,
        kRounds, kStepsPerRound, result.timing.least, result.timing.most);
  }
  if (!o.json.empty()) write_json(o.json, o, gpu, result);
  return kDone;
}

int failed(ExitCode code, const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      std::fputs(kUsage, stdout);
      return kDone;
    }
    return run(options);
  } catch (const UsageError& error) {
    return failed(kWrongUsage, error);
  } catch (const DataError& error) {
    return failed(kWrongFiles, error);
  } catch (const CudaError& error) {
    return failed(kCudaFailed, error);
  } catch (const std::exception& error) {
    return failed(kDiverged, error);
  }
}
