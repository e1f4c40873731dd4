#include "options.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

const char* const kUsage =
    R"(usage: mnist --data DIR [options]

Trains 784 -> hidden -> hidden -> 10 on MNIST.

  --data DIR            folder with the four IDX files, plain or gzipped
  --check-data          only read and check them; needs no GPU
  --hidden N            width of both hidden layers, a multiple of 8 [128]
  --batch N             images in a step [128]
  --epochs N            passes over the training images [10]
  --steps N             stop after so many steps, whatever --epochs says
  --lr X                learning rate [0.2]
  --accumulate f16|f32  what the products on the way through the network are summed up in [f32]
  --seed N              of initial weights and of the order of the images [1]
  --weights-in FILE     start from these weights
  --weights-out FILE    write the weights at the end
  --losses FILE         write the loss of every step as CSV
  --json FILE           write what was measured
  --bench               measure the time of a step afterwards
  --no-graph            launch every kernel of every step instead of replaying a CUDA graph
  --help

Exit codes: 0 done, 1 the loss is no number, 2 wrong options, 3 wrong files, 4 CUDA.
)";

namespace {

constexpr int kMostHidden = 8192;

long long integer(const std::string& name, const char* text, long long least, long long most) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
    throw UsageError(
        name + " takes an integer from " + std::to_string(least) + " to " + std::to_string(most) +
        ", not '" + text + "'");
  }
  return value;
}

float positive(const std::string& name, const char* text) {
  char* end = nullptr;
  const float value = std::strtof(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(value) || value <= 0) {
    throw UsageError(name + " takes a positive number, not '" + text + "'");
  }
  return value;
}

template <class T>
T word(const std::string& name, const std::string& text, const std::map<std::string, T>& words) {
  const auto found = words.find(text);
  if (found != words.end()) return found->second;
  std::string all;
  for (const auto& entry : words) all += (all.empty() ? "" : ", ") + entry.first;
  throw UsageError(name + " takes one of " + all + ", not '" + text + "'");
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  constexpr int kMost = 1'000'000'000;
  Options o;
  const std::map<std::string, bool*> flags = {
      {"--bench", &o.bench}, {"--check-data", &o.check_data}, {"--help", &o.help}, {"-h", &o.help}};
  const std::map<std::string, std::string*> texts = {
      {"--data", &o.data},
      {"--weights-in", &o.weights_in},
      {"--weights-out", &o.weights_out},
      {"--losses", &o.losses},
      {"--json", &o.json}};
  const std::map<std::string, int*> counts = {
      {"--hidden", &o.hidden},
      {"--batch", &o.batch},
      {"--epochs", &o.epochs},
      {"--steps", &o.steps}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    if (name == "--no-graph") {
      o.graph = false;
      continue;
    }
    const auto value = [&] {
      if (i + 1 == argc) throw UsageError(name + " has no value");
      return argv[++i];
    };
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value();
    } else if (const auto count = counts.find(name); count != counts.end()) {
      *count->second = static_cast<int>(integer(name, value(), 1, kMost));
    } else if (name == "--seed") {
      o.seed = static_cast<uint64_t>(integer(name, value(), 0, INT64_MAX));
    } else if (name == "--lr") {
      o.rate = positive(name, value());
    } else if (name == "--accumulate") {
      o.sums = word<Sums>(name, value(), {{"f16", Sums::kF16}, {"f32", Sums::kF32}});
    } else {
      throw UsageError("there is no option '" + name + "'");
    }
  }
  if (o.help) return o;
  if (o.data.empty()) throw UsageError("--data is missing: the folder with the MNIST files");
  if (o.hidden % 8 != 0 || o.hidden > kMostHidden) {
    throw UsageError(
        "--hidden takes a multiple of 8 up to " + std::to_string(kMostHidden) + ", not '" +
        std::to_string(o.hidden) + "'");
  }
  return o;
}
