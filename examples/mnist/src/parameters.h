// Weights and biases: where they lie in memory, how they start, and as a file.
#ifndef MNIST_PARAMETERS_H
#define MNIST_PARAMETERS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shape.h"

// All parameters in one array: three matrices, row-major with a row for each input, then three
// biases. Each begins at a multiple of 8 elements, as hidden is one. The rows of the last matrix
// and the last bias are padded to kClassesLd, with zeros that nothing reads.
struct ParameterLayout {
  int hidden;

  size_t weights(int layer) const {
    const size_t first = size_t(kPixels) * hidden, second = size_t(hidden) * hidden;
    return layer == 0 ? 0 : layer == 1 ? first : first + second;
  }
  size_t all_weights() const {
    return weights(2) + size_t(hidden) * kClassesLd;
  }
  size_t bias(int layer) const {
    return all_weights() + size_t(layer) * hidden;
  }
  size_t size() const {
    return bias(2) + kClassesLd;
  }
  int inputs(int layer) const {
    return layer == 0 ? kPixels : hidden;
  }
  int outputs(int layer) const {
    return layer == 2 ? kClasses : hidden;
  }
  int ld(int layer) const {
    return layer == 2 ? kClassesLd : hidden;
  }
};

// Uniform in +-1 / sqrt(inputs), as PyTorch's nn.Linear starts, too.
std::vector<float> initial_parameters(int hidden, uint64_t seed);

// A file of them: "MLP1", the sizes 784, hidden, 10 as 32-bit integers, then for each layer the
// matrix and the bias as floats, without padding; all little-endian. Throw DataError.
std::vector<float> read_parameters(const std::string& path, int hidden);
void write_parameters(const std::string& path, int hidden, const std::vector<float>& parameters);

#endif
