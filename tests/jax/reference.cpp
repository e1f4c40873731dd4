// A kernel's library that multiplies floats in host memory: of LAYOUTS, and with a WORKSPACE or none.
#include <cstdint>
#include <cstring>

#include "product.h"

static float at(const void* matrix, bool row_major, long long row, long long col, long long ld) {
  return static_cast<const float*>(matrix)[row_major ? row * ld + col : col * ld + row];
}

int gen_jax_launch(const gen_jax::Product& p) {
  if ((p.workspace != nullptr) != (WORKSPACE > 0) || p.workspace_bytes < WORKSPACE) return 1;
  if (reinterpret_cast<std::uintptr_t>(p.workspace) % 256) return 1;
  if (WORKSPACE) std::memset(p.workspace, 0xff, p.workspace_bytes);
  constexpr char layouts[] = LAYOUTS;
  for (long long row = 0; row < p.m; ++row) {
    for (long long col = 0; col < p.n; ++col) {
      double sum = 0;
      for (long long k = 0; k < p.k; ++k) {
        sum +=
            at(p.a, layouts[0] == 'r', row, k, p.lda) * at(p.b, layouts[1] == 'r', k, col, p.ldb);
      }
      sum *= p.alpha;
      if (p.c) sum += p.beta * at(p.c, true, row, col, p.ldc);
      if (p.bias) sum += static_cast<const float*>(p.bias)[col];
      static_cast<float*>(p.d)[row * p.ldd + col] = static_cast<float>(sum);
    }
  }
  return 0;
}
