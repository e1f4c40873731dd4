// The command line.
#ifndef MNIST_OPTIONS_H
#define MNIST_OPTIONS_H

#include <cstdint>
#include <stdexcept>
#include <string>

#include "gemms.h"

// What is wrong with the command line, in one sentence.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string data;
  int hidden = 128;
  int batch = 128;
  int epochs = 10;
  int steps = 0;  // 0: as many as the epochs have
  float rate = 0.2f;
  Sums sums = Sums::kF32;
  uint64_t seed = 1;
  bool graph = true;
  bool bench = false;
  bool check_data = false;
  bool help = false;
  std::string weights_in, weights_out, losses, json;
};

// Throws UsageError.
Options parse_options(int argc, const char* const* argv);

extern const char* const kUsage;

#endif
