#include "parameters.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "idx.h"
#include "random.h"

namespace {

constexpr char kMagic[4] = {'M', 'L', 'P', '1'};

struct Header {
  char magic[4];
  uint32_t sizes[3];
};

using FileHandle = std::unique_ptr<FILE, int (*)(FILE*)>;

// Calls `row(first element, count)` for every row of every matrix and for every bias, in the
// file's order.
void for_each_row(int hidden, const std::function<void(size_t, size_t)>& row) {
  const ParameterLayout layout{hidden};
  for (int layer = 0; layer < 3; ++layer) {
    const size_t outputs = layout.outputs(layer);
    for (int i = 0; i < layout.inputs(layer); ++i) {
      row(layout.weights(layer) + size_t(i) * layout.ld(layer), outputs);
    }
    row(layout.bias(layer), outputs);
  }
}

}  // namespace

std::vector<float> initial_parameters(int hidden, uint64_t seed) {
  const ParameterLayout layout{hidden};
  std::vector<float> parameters(layout.size(), 0.0f);
  for (int layer = 0; layer < 3; ++layer) {
    const Random weights(seed, 2 * layer), biases(seed, 2 * layer + 1);
    const int inputs = layout.inputs(layer), outputs = layout.outputs(layer);
    const float bound = 1.0f / std::sqrt(static_cast<float>(inputs));
    for (int i = 0; i < inputs; ++i) {
      float* const row = &parameters[layout.weights(layer) + size_t(i) * layout.ld(layer)];
      for (int o = 0; o < outputs; ++o) {
        row[o] = weights.uniform(uint64_t(i) * outputs + o) * bound;
      }
    }
    for (int o = 0; o < outputs; ++o)
      parameters[layout.bias(layer) + o] = biases.uniform(o) * bound;
  }
  return parameters;
}

std::vector<float> read_parameters(const std::string& path, int hidden) {
  const FileHandle file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw DataError(path + ": cannot be opened");
  Header header;
  if (std::fread(&header, sizeof header, 1, file.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    throw DataError(path + ": is no file of weights, which begins with MLP1");
  }
  const uint32_t expected[3] = {kPixels, static_cast<uint32_t>(hidden), kClasses};
  if (std::memcmp(header.sizes, expected, sizeof expected) != 0) {
    throw DataError(
        path + ": is for a network of " + std::to_string(header.sizes[0]) + ", " +
        std::to_string(header.sizes[1]) + " and " + std::to_string(header.sizes[2]) +
        " units instead of 784, " + std::to_string(hidden) + " and 10");
  }
  std::vector<float> parameters(ParameterLayout{hidden}.size(), 0.0f);
  for_each_row(hidden, [&](size_t first, size_t count) {
    if (std::fread(&parameters[first], sizeof(float), count, file.get()) != count) {
      throw DataError(path + ": is cut off");
    }
  });
  if (std::fgetc(file.get()) != EOF) throw DataError(path + ": is too long");
  return parameters;
}

void write_parameters(const std::string& path, int hidden, const std::vector<float>& parameters) {
  FileHandle file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (!file) throw DataError(path + ": cannot be written");
  Header header{{}, {kPixels, static_cast<uint32_t>(hidden), kClasses}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  bool good = std::fwrite(&header, sizeof header, 1, file.get()) == 1;
  for_each_row(hidden, [&](size_t first, size_t count) {
    good = good && std::fwrite(&parameters[first], sizeof(float), count, file.get()) == count;
  });
  if (std::fclose(file.release()) != 0 || !good) throw DataError(path + ": cannot be written");
}
