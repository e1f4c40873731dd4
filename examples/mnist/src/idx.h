// The MNIST files: IDX, as they are or gzipped.
#ifndef MNIST_IDX_H
#define MNIST_IDX_H

#include <stdexcept>
#include <string>
#include <vector>

// A file that is missing or not what it should be; the message names it and says why.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ImageSet {
  std::vector<unsigned char> images;  // kPixels bytes each
  std::vector<unsigned char> labels;  // 0 to 9

  int count() const {
    return static_cast<int>(labels.size());
  }
};

struct Dataset {
  ImageSet train, test;
};

// Reads the four files from a folder. Throws DataError.
Dataset read_dataset(const std::string& folder);

#endif
