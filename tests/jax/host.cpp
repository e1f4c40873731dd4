// The handler without XLA's stream, which the CPU's backend does not have.
#include "handler.cpp"

static xla::ffi::Error multiply_here(
    xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results, std::string_view library,
    bool has_c, double alpha, double beta, gen_jax::Numbers sizes, gen_jax::Numbers leading,
    gen_jax::Numbers strides, gen_jax::Numbers further_ld, xla::ffi::Span<const double> numbers,
    gen_jax::Numbers offsets) {
  return gen_jax::multiply(
      nullptr, operands, results, library, has_c, alpha, beta, sizes, leading, strides, further_ld,
      numbers, offsets);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    multiply_on_host, multiply_here,
    xla::ffi::Ffi::Bind()
        .RemainingArgs()
        .RemainingRets()
        .Attr<std::string_view>("library")
        .Attr<bool>("has_c")
        .Attr<double>("alpha")
        .Attr<double>("beta")
        .Attr<xla::ffi::Span<const std::int64_t>>("sizes")
        .Attr<xla::ffi::Span<const std::int64_t>>("leading")
        .Attr<xla::ffi::Span<const std::int64_t>>("strides")
        .Attr<xla::ffi::Span<const std::int64_t>>("further_ld")
        .Attr<xla::ffi::Span<const double>>("numbers")
        .Attr<xla::ffi::Span<const std::int64_t>>("offsets"));
