// The handler without XLA's stream, which the CPU's backend does not have.
#include "handler.cpp"

static xla::ffi::Error multiply_here(
    xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results, std::string_view library,
    bool has_c, bool has_bias, double alpha, double beta, gen_jax::Numbers sizes,
    gen_jax::Numbers leading, gen_jax::Numbers batch, gen_jax::Numbers strides) {
  return gen_jax::multiply(
      nullptr, operands, results, library, has_c, has_bias, alpha, beta, sizes, leading, batch,
      strides);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    multiply_on_host, multiply_here,
    xla::ffi::Ffi::Bind()
        .RemainingArgs()
        .RemainingRets()
        .Attr<std::string_view>("library")
        .Attr<bool>("has_c")
        .Attr<bool>("has_bias")
        .Attr<double>("alpha")
        .Attr<double>("beta")
        .Attr<xla::ffi::Span<const std::int64_t>>("sizes")
        .Attr<xla::ffi::Span<const std::int64_t>>("leading")
        .Attr<xla::ffi::Span<const std::int64_t>>("batch")
        .Attr<xla::ffi::Span<const std::int64_t>>("strides"));
