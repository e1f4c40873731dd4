// What the fake CUDA runtime and the fake driver share: the machine that they stand for, and a reply
// that says what they were asked for.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace fake {

// A problem, and the machine that it is for. kind: a bundle's element types, layout and epilogue. own:
// the stream's device. refused_launch, refused_map, refused_call: the number, from 1, of one that is
// refused, among launches, tensor maps and other calls that may fail; launch_error, with which error a
// launch is. no_bytes: a null pointer for the workspace's size. capability, shared: of the device, 80 for
// 8.0, and the bytes that a block may have there; 0 where nobody is to ask.
struct Problem {
  long long M, N, K;
  double alpha, beta;
  unsigned long long A, B, C, D, bias, workspace, offsets;
  long long lda, ldb, ldc, ldd, batch, stride_a, stride_b, stride_c, stride_d;
  size_t bytes;
  int multiprocessors = 132, current, own, capturing, no_tma, refused_launch, refused_map, refused_call,
      no_bytes, kind[3], null_stream, launch_error, capability, shared;
  std::vector<long long> fused;  // what the user's own epilogue takes: addresses, lengths, numbers
};

// Each thread has its own. Shared libraries share them with the program that exports them.
inline thread_local Problem now;
inline thread_local int launches, maps, calls;
inline thread_local std::string* reply;  // null: standard output
inline thread_local bool inside;  // a launcher
inline thread_local void* stream;  // that the launcher is given

// What a fake does itself, such as to allocate, is no launcher's doing.
struct Outside {
  const bool before = inside;
  Outside() {
    inside = false;
  }
  ~Outside() {
    inside = before;
  }
};

inline void say(const char* format, ...) {
  const Outside outside;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (reply) {
    *reply += text;
  } else {
    fputs(text, stdout);
  }
}

// Whether this call is the one that fails, with an error that nothing else returns.
constexpr int kRefused = 999;
inline bool refuses() {
  if (++calls != now.refused_call) return false;
  say("refused\n");
  return true;
}

// What a device has of this kind, which the driver and the runtime number alike; -1 for what nobody is to ask.
inline int attribute(int kind) {
  if (kind == 16) return now.multiprocessors;
  if (now.capability == 0) return -1;
  return kind == 75   ? now.capability / 10
         : kind == 76 ? now.capability % 10
         : kind == 97 ? now.shared
                      : -1;
}

// Clusters that run at the same time: here all multiprocessors have a place in one.
inline int clusters(
    const char* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, size_t shared) {
  say("clusters %s %u %u %u %u %u %u %zu\n", kernel, gx, gy, gz, bx, by, bz, shared);
  return now.multiprocessors / static_cast<int>(gx);
}

// An argument of so many bytes, in numbers of eight; of a tensor map what `encode` has put there.
inline void print(const void* argument, size_t bytes) {
  unsigned long long words[14] = {};
  memcpy(words, argument, bytes < sizeof words ? bytes : sizeof words);
  say(" %llx", words[0]);
  for (int i = 1; bytes > 8 && i < 14; ++i) say(",%llx", words[i]);
}

// cuTensorMapEncodeTiled: refuses what a driver does, and what our launchers never ask for.
inline int encode(
    void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
    const uint64_t* strides, const unsigned* box, const unsigned* every, int interleave,
    int swizzle, int promotion, int fill) {
  bool odd = rank < 2 || rank > 4 || interleave || promotion < 0 || promotion > 3 || fill;
  for (unsigned at = 0; at < rank; ++at) odd |= every[at] != 1;
  for (unsigned at = 1; at + 1 < rank; ++at) odd |= strides[at] % 16 || strides[at] >> 40;
  const size_t at = reinterpret_cast<size_t>(address);
  if (++maps == now.refused_map || odd || at % 16 || strides[0] % 16 || strides[0] >> 40 ||
      sizes[0] > 1ull << 32 || sizes[1] > 1ull << 32 || box[0] > 256 || box[1] > 256 || !box[0] ||
      !box[1] || reinterpret_cast<size_t>(map) % 64) {
    return 1;
  }
  const unsigned long long words[16] = {
      static_cast<unsigned long long>(type),   at, sizes[0], sizes[1], strides[0], box[0], box[1],
      static_cast<unsigned long long>(swizzle),
      rank > 2 ? sizes[2] : 0, rank > 2 ? strides[1] : 0, rank > 2 ? box[2] : 0,
      rank > 3 ? sizes[3] : 0, rank > 3 ? strides[2] : 0, rank > 3 ? box[3] : 0};
  static_assert(sizeof words == 128, "as large as a map");
  memcpy(map, words, sizeof words);
  return 0;
}

}  // namespace fake
