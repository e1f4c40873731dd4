// What stands in conditions of an instrumented file, and tells what has become of them: condition
// number N is true, or false. In a kernel the emulator is told, in a program its standard error.
#pragma once

#ifdef __CUDACC_RTC__
#define GEMMGEN_PROBE __device__
template <int N>
__device__ inline void gemmgen_tell(bool x) {
  asm volatile("probe.u32 %0, %1;" ::"n"(N), "r"(int(x)) : "memory");
}
#else
#include <cstdio>

#define GEMMGEN_PROBE
struct gemmgen_outcomes {
  unsigned char seen[GEMMGEN_PROBES] = {};
  ~gemmgen_outcomes() {
    for (int i = 0; i < GEMMGEN_PROBES; ++i) std::fprintf(stderr, "probe %d %d\n", i, seen[i]);
  }
};
inline gemmgen_outcomes gemmgen_told;
template <int N>
inline void gemmgen_tell(bool x) {
  gemmgen_told.seen[N] |= x ? 1 : 2;
}
#endif

template <int N>
GEMMGEN_PROBE constexpr bool gemmgen_note(bool x) {
  if (!__builtin_is_constant_evaluated()) gemmgen_tell<N>(x);
  return x;
}
template <int N, class T>
GEMMGEN_PROBE constexpr bool gemmgen_truth(const T& x) {
  return gemmgen_note<N>(static_cast<bool>(x));
}

// `a == b` becomes `a == gemmgen_at<N>{} == b`: no bracket has to be found.
template <int N>
struct gemmgen_at {};
template <int N, class T>
struct gemmgen_left {
  T value;
};
#define GEMMGEN_OPENING(op)                                                       \
  template <int N, class T>                                                       \
  GEMMGEN_PROBE constexpr gemmgen_left<N, T> operator op(T left, gemmgen_at<N>) { \
    return {left};                                                                \
  }
#define GEMMGEN_COMPARISON(op)                                                            \
  GEMMGEN_OPENING(op)                                                                     \
  template <int N, class T, class U>                                                      \
  GEMMGEN_PROBE constexpr bool operator op(gemmgen_left<N, T> left, U right) {            \
    return gemmgen_note<N>(left.value op right);                                          \
  }
GEMMGEN_COMPARISON(==)
GEMMGEN_COMPARISON(!=)
GEMMGEN_COMPARISON(<)
GEMMGEN_COMPARISON(<=)
GEMMGEN_COMPARISON(>)
GEMMGEN_COMPARISON(>=)
#undef GEMMGEN_COMPARISON

// Whether an integer is always 0; other types pass.
template <class T>
struct gemmgen_integer {
  static constexpr bool value = false;
};
#define GEMMGEN_INTEGER(type)                 \
  template <>                                 \
  struct gemmgen_integer<type> {              \
    static constexpr bool value = true;       \
  };                                          \
  template <>                                 \
  struct gemmgen_integer<unsigned type> {     \
    static constexpr bool value = true;       \
  };
GEMMGEN_INTEGER(char)
GEMMGEN_INTEGER(short)
GEMMGEN_INTEGER(int)
GEMMGEN_INTEGER(long)
GEMMGEN_INTEGER(long long)
#undef GEMMGEN_INTEGER
template <>
struct gemmgen_integer<signed char> {
  static constexpr bool value = true;
};
template <int N, class T>
GEMMGEN_PROBE constexpr T gemmgen_value(T x) {
  if constexpr (gemmgen_integer<T>::value) {
    gemmgen_note<N>(x != 0);
  } else if (!__builtin_is_constant_evaluated()) {
    gemmgen_tell<N>(true);
  }
  return x;
}
#define GEMMGEN_ARITHMETIC(op)                                                            \
  GEMMGEN_OPENING(op)                                                                     \
  template <int N, class T, class U>                                                      \
  GEMMGEN_PROBE constexpr auto operator op(gemmgen_left<N, T> left, U right) {            \
    return gemmgen_value<N>(left.value op right);                                         \
  }
GEMMGEN_ARITHMETIC(/)
GEMMGEN_ARITHMETIC(>>)
#undef GEMMGEN_ARITHMETIC

// What wraps around is to do so, where it is not of a few bits: else it may be there too early.
template <int N, class T, class U, class V>
GEMMGEN_PROBE constexpr V gemmgen_rest(T x, U most, V rest) {
  if constexpr (gemmgen_integer<T>::value && gemmgen_integer<U>::value) {
    gemmgen_note<N>(rest != 0 && (most < U(127) || static_cast<V>(x) != rest));
    return rest;
  } else {
    return gemmgen_value<N>(rest);
  }
}
#define GEMMGEN_REST(op)                                                                  \
  GEMMGEN_OPENING(op)                                                                     \
  template <int N, class T, class U>                                                      \
  GEMMGEN_PROBE constexpr auto operator op(gemmgen_left<N, T> left, U right) {            \
    return gemmgen_rest<N>(left.value, right, left.value op right);                       \
  }
GEMMGEN_REST(%)
GEMMGEN_REST(&)
#undef GEMMGEN_REST

// A minimum or a maximum: equal operands are in both orders.
template <int N, class F, class A, class B>
GEMMGEN_PROBE constexpr auto gemmgen_order(F f, A a, B b) {
  gemmgen_note<N>(a <= b);
  gemmgen_note<N>(!(a >= b));
  return f(a, b);
}

// Whether an integer of more bits comes where a short one is, and needs them.
template <int N, class T, class U>
GEMMGEN_PROBE constexpr void gemmgen_fits(U x) {
  if constexpr (gemmgen_integer<T>::value && gemmgen_integer<U>::value && sizeof(T) < sizeof(U)) {
    gemmgen_note<N>(static_cast<U>(static_cast<T>(x)) != x);
  }
}
template <int N, class T, class U>
GEMMGEN_PROBE constexpr T gemmgen_cast(U x) {
  gemmgen_fits<N, T>(x);
  return static_cast<T>(x);
}
// `(int)x` becomes `gemmgen_cast_at<N, int>{} ->* x`, which binds as tightly as no other operator.
template <int N, class T>
struct gemmgen_cast_at {
  template <class U>
  GEMMGEN_PROBE constexpr T operator->*(U x) const {
    return gemmgen_cast<N, T>(x);
  }
};
// `int x` becomes `gemmgen_narrow<N, int> x`.
template <int N, class T>
struct gemmgen_narrow {
  T value;
  gemmgen_narrow() = default;
  template <class U>
  GEMMGEN_PROBE constexpr gemmgen_narrow(U x) : value(gemmgen_cast<N, T>(x)) {}
  GEMMGEN_PROBE constexpr operator T&() { return value; }
  GEMMGEN_PROBE constexpr operator T() const { return value; }
#define GEMMGEN_ASSIGNMENT(op)                              \
  template <class U>                                        \
  GEMMGEN_PROBE constexpr gemmgen_narrow& operator op(U x) { \
    gemmgen_fits<N, T>(x);                                  \
    value op x;                                             \
    return *this;                                           \
  }
  GEMMGEN_ASSIGNMENT(=)
  GEMMGEN_ASSIGNMENT(+=)
  GEMMGEN_ASSIGNMENT(-=)
#undef GEMMGEN_ASSIGNMENT
};
#define GEMMGEN_COMPARED(op)                                                    \
  template <int N, class T, class U>                                            \
  GEMMGEN_PROBE constexpr bool operator op(const gemmgen_narrow<N, T>& x, U y) { \
    gemmgen_fits<N, T>(y);                                                      \
    return x.value op y;                                                        \
  }                                                                             \
  template <int N, class T, int M>                                              \
  GEMMGEN_PROBE constexpr gemmgen_left<M, gemmgen_narrow<N, T>> operator op(     \
      const gemmgen_narrow<N, T>& x, gemmgen_at<M>) {                           \
    return {x};                                                                 \
  }
GEMMGEN_COMPARED(<)
GEMMGEN_COMPARED(<=)
GEMMGEN_COMPARED(>)
GEMMGEN_COMPARED(>=)
GEMMGEN_COMPARED(==)
GEMMGEN_COMPARED(!=)
#undef GEMMGEN_COMPARED

// Products and sums of short integers that leave their type.
#define GEMMGEN_PRODUCT(op)                                                      \
  GEMMGEN_OPENING(op)                                                            \
  template <int N, class T, class U>                                             \
  GEMMGEN_PROBE constexpr auto operator op(gemmgen_left<N, T> left, U right) {   \
    if constexpr (gemmgen_integer<T>::value && gemmgen_integer<U>::value &&      \
                  sizeof(T) <= sizeof(int) && sizeof(U) <= sizeof(int)) {        \
      using both = decltype(left.value op right);                                \
      gemmgen_fits<N, both>(static_cast<long long>(left.value) op right);        \
    }                                                                            \
    return left.value op right;                                                  \
  }
GEMMGEN_PRODUCT(*)
GEMMGEN_PRODUCT(+)
GEMMGEN_PRODUCT(-)
GEMMGEN_PRODUCT(<<)
#undef GEMMGEN_PRODUCT
#undef GEMMGEN_OPENING
