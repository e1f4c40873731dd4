#include "idx.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#ifdef MNIST_ZLIB
#include <zlib.h>
#endif

#include "shape.h"

namespace {

constexpr uint32_t kImagesMagic = 0x803;  // bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x801;  // bytes, one dimension
constexpr uint32_t kSide = 28;
constexpr size_t kMost = size_t(1) << 30;  // bytes: real files have 47 MB

using Bytes = std::vector<unsigned char>;

bool exists(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  return file != nullptr;
}

// Calls `read(buffer, size)` until it gives nothing more; negative is an error.
template <class Read>
Bytes read_all(const std::string& path, Read read) {
  constexpr size_t kPiece = size_t(1) << 20;
  Bytes bytes;
  for (;;) {
    const size_t end = bytes.size();
    bytes.resize(end + kPiece);
    const long long got = read(bytes.data() + end, kPiece);
    if (got < 0) throw DataError(path + ": cannot be read: it is damaged or cut off");
    bytes.resize(end + static_cast<size_t>(got));
    if (got == 0) return bytes;
    if (bytes.size() > kMost) throw DataError(path + ": more than 1 GiB, this is no MNIST file");
  }
}

Bytes read_plain(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw DataError(path + ": " + std::strerror(errno));
  return read_all(path, [&](unsigned char* to, size_t size) -> long long {
    const size_t got = std::fread(to, 1, size, file.get());
    return std::ferror(file.get()) ? -1 : static_cast<long long>(got);
  });
}

Bytes read_gzip(const std::string& path) {
#ifdef MNIST_ZLIB
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw DataError(path + ": " + std::strerror(errno));
  return read_all(path, [&](unsigned char* to, size_t size) -> long long {
    const int got = gzread(file.get(), to, static_cast<unsigned int>(size));
    int error = Z_OK;
    gzerror(file.get(), &error);  // a stream that ends too early is reported here alone
    return error == Z_OK || error == Z_STREAM_END ? got : -1;
  });
#else
  throw DataError(path + ": this program was built without zlib; run: gunzip -k " + path);
#endif
}

struct File {
  std::string path;
  Bytes bytes;
};

// The file of this name, or, if there is none, that with .gz appended.
File read_file(const std::string& folder, const char* name) {
  const std::string plain = folder + "/" + name, gzipped = plain + ".gz";
  if (exists(plain)) return {plain, read_plain(plain)};
  if (exists(gzipped)) return {gzipped, read_gzip(gzipped)};
  throw DataError(
      plain + ": there is neither this file nor " + name +
      ".gz; see README.md for where to get it");
}

uint32_t number(const File& file, size_t index) {
  const size_t at = index * 4;
  if (file.bytes.size() < at + 4) {
    throw DataError(
        file.path + ": " + std::to_string(file.bytes.size()) +
        " bytes are too few for the header of an IDX file");
  }
  const unsigned char* const b = file.bytes.data() + at;
  return uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | b[3];
}

std::string hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", static_cast<unsigned int>(value));
  return text;
}

// Checks what every IDX file has, and returns what follows the header.
Bytes payload(const File& file, uint32_t magic, size_t dimensions, size_t item) {
  const uint32_t found = number(file, 0);
  if (found != magic) {
    throw DataError(
        file.path + ": begins with " + hex(found) + " instead of " + hex(magic) +
        ", this is another kind of file");
  }
  const size_t header = 4 * (1 + dimensions);
  const size_t count = number(file, 1);
  number(file, dimensions);  // the whole header is there
  const size_t expected = header + count * item;
  if (file.bytes.size() != expected) {
    throw DataError(
        file.path + ": has " + std::to_string(file.bytes.size()) + " bytes instead of " +
        std::to_string(expected) + " for " + std::to_string(count) + " items, it is " +
        (file.bytes.size() < expected ? "cut off" : "too long"));
  }
  if (count == 0) throw DataError(file.path + ": is empty");
  return Bytes(file.bytes.begin() + static_cast<Bytes::difference_type>(header), file.bytes.end());
}

ImageSet read_set(const std::string& folder, const char* images_name, const char* labels_name) {
  const File images = read_file(folder, images_name), labels = read_file(folder, labels_name);
  ImageSet set;
  set.images = payload(images, kImagesMagic, 3, kPixels);
  if (number(images, 2) != kSide || number(images, 3) != kSide) {
    throw DataError(
        images.path + ": images of " + std::to_string(number(images, 2)) + " x " +
        std::to_string(number(images, 3)) + " pixels instead of 28 x 28");
  }
  set.labels = payload(labels, kLabelsMagic, 1, 1);
  if (set.images.size() != set.labels.size() * kPixels) {
    throw DataError(
        labels.path + ": " + std::to_string(set.labels.size()) + " labels for the " +
        std::to_string(set.images.size() / kPixels) + " images of " + images.path);
  }
  for (const unsigned char label : set.labels) {
    if (label >= kClasses) {
      throw DataError(labels.path + ": the label " + std::to_string(label) + " is no digit");
    }
  }
  return set;
}

}  // namespace

Dataset read_dataset(const std::string& folder) {
  return {
      read_set(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
      read_set(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")};
}
