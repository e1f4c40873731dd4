// A kernel's library that multiplies floats in host memory: of LAYOUTS, with a WORKSPACE or none, and with
// the EPILOGUE "", "bias", or "own": x * further[0][row, col] + further[1][row] * further[2][col] - number.
// Where products are GROUPED, doubles: of "rows", or along "k".
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "product.h"

constexpr std::string_view kEpilogue = EPILOGUE, kGrouped = GROUPED;

static const float* floats(const void* array) {
  return static_cast<const float*>(array);
}

static float at(
    const void* matrix, long long start, bool row_major, long long row, long long col,
    long long ld) {
  return floats(matrix)[start + (row_major ? row * ld + col : col * ld + row)];
}

static float epilogue(const gen_jax::Product& p, double x, long long row, long long col) {
  if (kEpilogue == "bias") return static_cast<float>(x + floats(p.further[0])[col]);
  if (kEpilogue.empty()) return static_cast<float>(x);
  const float product = floats(p.further[1])[row] * floats(p.further[2])[col];
  const double scaled = x * at(p.further[0], 0, true, row, col, p.further_ld[0]);
  return static_cast<float>(scaled + product - p.numbers[0]);
}

// The same of groups: D = A * B.
static int launch_groups(const gen_jax::Product& p) {
  const auto a = static_cast<const double*>(p.a), b = static_cast<const double*>(p.b);
  const auto d = static_cast<double*>(p.d);
  const auto offsets = static_cast<const int*>(p.further[0]);
  constexpr char layouts[] = LAYOUTS;
  const bool along_k = kGrouped == "k";
  long long begin = 0;
  for (long long group = 0; group < p.batch; ++group) {
    const long long end =
        std::max<long long>(begin, std::min<long long>(offsets[group], along_k ? p.k : p.m));
    for (long long row = along_k ? 0 : begin; row < (along_k ? p.m : end); ++row) {
      for (long long col = 0; col < p.n; ++col) {
        double sum = 0;
        for (long long k = along_k ? begin : 0; k < (along_k ? end : p.k); ++k) {
          sum += a[layouts[0] == 'r' ? row * p.lda + k : k * p.lda + row] *
                 b[group * p.stride_b + (layouts[1] == 'r' ? k * p.ldb + col : col * p.ldb + k)];
        }
        d[group * p.stride_d + row * p.ldd + col] = sum;
      }
    }
    begin = end;
  }
  return 0;
}

int gen_jax_launch(const gen_jax::Product& p) {
  if ((p.workspace != nullptr) != (WORKSPACE > 0) || p.workspace_bytes < WORKSPACE) return 1;
  if (reinterpret_cast<std::uintptr_t>(p.workspace) % 256) return 1;
  if (WORKSPACE) std::memset(p.workspace, 0xff, p.workspace_bytes);
  if (!kGrouped.empty()) return launch_groups(p);
  constexpr char layouts[] = LAYOUTS;
  for (long long i = 0; i < p.batch * p.m * p.n; ++i) {
    const long long batch = i / (p.m * p.n), row = i / p.n % p.m, col = i % p.n;
    double sum = 0;
    for (long long k = 0; k < p.k; ++k) {
      sum += at(p.a, batch * p.stride_a, layouts[0] == 'r', row, k, p.lda) *
             at(p.b, batch * p.stride_b, layouts[1] == 'r', k, col, p.ldb);
    }
    sum *= p.alpha;
    if (p.c) sum += p.beta * at(p.c, batch * p.stride_c, true, row, col, p.ldc);
    static_cast<float*>(p.d)[batch * p.stride_d + row * p.ldd + col] = epilogue(p, sum, row, col);
  }
  return 0;
}
