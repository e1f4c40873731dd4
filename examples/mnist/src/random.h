// Random numbers that mnist_data.py makes, too, bit for bit: the same initial weights and the same
// batches in every program of this example.
#ifndef MNIST_RANDOM_H
#define MNIST_RANDOM_H

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

// Streams of numbers: one for each matrix and bias of the network, and for each epoch's order.
constexpr uint64_t kFirstEpochStream = 16;

// A number of a sequence (SplitMix64), found without those before it.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : start_(mix(seed + kStep * (stream + 1))) {
  }

  uint64_t bits(uint64_t i) const {
    return mix(start_ + kStep * (i + 1));
  }
  // In [-1, 1), in steps of 2^-23.
  float uniform(uint64_t i) const {
    return static_cast<float>(bits(i) >> 40) * 0x1p-23f - 1.0f;
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t start_;
};

// The order of an epoch: 0 to count - 1, sorted by random keys, which are all different.
inline std::vector<int> shuffled(int count, uint64_t seed, uint64_t epoch) {
  const Random random(seed, kFirstEpochStream + epoch);
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(
      order.begin(), order.end(), [&](int i, int j) { return random.bits(i) < random.bits(j); });
  return order;
}

#endif
