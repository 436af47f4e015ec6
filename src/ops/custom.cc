// ops/custom.cc: checks the arguments of operations on schemes and formats that are known at run
// time, and picks the device.
#include "mxkern/custom.h"

#include <cmath>
#include <iterator>

#include "check/any_scheme.h"
#include "check/arguments.h"
#include "cpu/any/backend.h"
#include "cuda/any/backend.h"

namespace mxkern {
namespace {

void check_any_buffer(const char* function, const char* argument, const AnyBuffer& x) {
  AnyBuffer plain = x;
  if (x.is_float64) plain.dtype = DType::float32;
  check_buffer(function, argument, plain);
}

void check_options(const char* function, const AnyOptions& options) {
  const AnyRoundingOptions& rounding = options.rounding;
  check(is_listed(rounding.rounding, all_any_roundings), function, ": rounding number ",
        static_cast<int>(rounding.rounding), "; expected one of all_any_roundings");
  check(rounding.random_bits >= 1 && rounding.random_bits <= 16, function, ": random_bits is ",
        rounding.random_bits, "; expected 1 to 16");
  check(is_listed(options.scale.rule, all_scale_rules), function, ": scale rule number ",
        static_cast<int>(options.scale.rule), "; expected rceil, floor, ceil or even");
  const float threshold = options.scale.threshold;
  check(threshold == 0.0f || (threshold >= 1.0f && threshold < 2.0f), function, ": threshold is ",
        threshold, "; expected 1 or more and less than 2, or 0 for none");
  check(threshold == 0.0f || options.scale.rule == ScaleRule::rceil, function,
        ": threshold with another scale rule than rceil; expected one of both");
}

void check_blocks(const char* function, const AnyScheme& scheme, const AnyOptions& options) {
  check_any_scheme(function, scheme);
  check_options(function, options);
  check(!options.square || (scheme.block_rows == 1 && scheme.block_columns > 0 &&
                            scheme.tensor_scales != TensorScales::row),
        function, ": square blocks of a scheme whose blocks have ", scheme.block_rows,
        " rows; expected blocks of one row and some columns");
  check(options.amax == nullptr || options.tensor_scale == nullptr, function,
        ": amax and tensor_scale are both given; expected at most one");
  check(scheme.has_tensor_scale() || (options.amax == nullptr && options.tensor_scale == nullptr),
        function, ": amax or tensor_scale for a scheme without a tensor scale; leave it out");
  check(options.scales == nullptr || options.block_amaxes == nullptr, function,
        ": scales and block amaxes are both given; expected at most one");
}

void check_out(const char* function, const AnyBuffer& out, const AnyBuffer& x) {
  check_any_buffer(function, "out", out);
  check_same_shape(function, "out", out.shape, x.shape);
  check_same_device(function, "out", out.device, x.device);
  check_writable(function, "out", out.is_read_only);
  check(out.is_float64 == x.is_float64 && (x.is_float64 || out.dtype == x.dtype), function,
        ": out is of another type than x; expected the same");
}

void check_quantized(const char* function, const char* argument, const AnyBlockScaled& q) {
  check_any_scheme(function, q.scheme);
  check_shape(function, argument, q.shape);
  check(q.scale_layout == ScaleLayout::row_major ||
            (q.scheme.block_rows == 1 && q.scheme.scale.stored_bits() == 8),
        function, ": ", argument,
        " has swizzled scales; expected blocks of one row and scales of a byte for that layout");
  const bool has_memory = q.shape.size() == 0 || (q.codes != nullptr && q.scales != nullptr);
  check(has_memory, function, ": ", argument, " has no memory for codes or scales");
  check(q.scheme.tensor_scale_count(q.shape) == 0 || q.tensor_scale != nullptr, function, ": ",
        argument, " has no memory for its tensor scale");
}

AnyBuffer with_strides_of(const AnyBuffer& x) {
  return {with_strides(static_cast<const Buffer&>(x)), x.is_float64};
}

bool is_cuda(const char* function, const Buffer& x) {
  check_device(function, x.device);
  return x.device.type == DeviceType::cuda;
}

}  // namespace

void quantize(const AnyBuffer& x, const AnyBlockScaled& out, const AnyOptions& options,
              Stream stream) {
  constexpr const char* function = "quantize";
  check_any_buffer(function, "x", x);
  check_quantized(function, "out", out);
  check_blocks(function, out.scheme, options);
  check_same_shape(function, "out", out.shape, x.shape);
  check_same_device(function, "out", out.device, x.device);
  const bool on_cuda = is_cuda(function, x);
  if constexpr (has_cuda) {
    if (on_cuda) return cuda::quantize_any(with_strides_of(x), out, options, stream);
  }
  cpu::quantize_any(with_strides_of(x), out, options);
}

void dequantize(const AnyBlockScaled& q, const AnyBuffer& out, Stream stream) {
  constexpr const char* function = "dequantize";
  check_quantized(function, "q", q);
  check_any_buffer(function, "out", out);
  check_same_shape(function, "out", out.shape, q.shape);
  check_same_device(function, "out", out.device, q.device);
  check_writable(function, "out", out.is_read_only);
  const bool on_cuda = is_cuda(function, out);
  if constexpr (has_cuda) {
    if (on_cuda) return cuda::dequantize_any(q, with_strides_of(out), stream);
  }
  cpu::dequantize_any(q, with_strides_of(out));
}

void fake_quantize(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                   const AnyOptions& options, Stream stream) {
  constexpr const char* function = "fake_quantize";
  check_any_buffer(function, "x", x);
  check_blocks(function, scheme, options);
  check_out(function, out, x);
  const bool on_cuda = is_cuda(function, x);
  if constexpr (has_cuda) {
    if (on_cuda) {
      return cuda::fake_quantize_any(with_strides_of(x), scheme, with_strides_of(out), options,
                                     stream);
    }
  }
  cpu::fake_quantize_any(with_strides_of(x), scheme, with_strides_of(out), options);
}

void round_to(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
              const AnyOptions& options, Stream stream) {
  constexpr const char* function = "round_to";
  check_any_buffer(function, "x", x);
  check_any_format(function, format);
  check_options(function, options);
  check_out(function, out, x);
  const bool on_cuda = is_cuda(function, x);
  if constexpr (has_cuda) {
    if (on_cuda) {
      return cuda::round_any(with_strides_of(x), format, with_strides_of(out), options, stream);
    }
  }
  cpu::round_any(with_strides_of(x), format, with_strides_of(out), options);
}

namespace {

void check_product(const char* function, const Buffer& a, const Buffer& b, const Buffer& out,
                   const AnyProductOptions& options) {
  check_buffer(function, "a", a);
  check_buffer(function, "b", b);
  check_buffer(function, "out", out);
  check<InvalidType>(a.dtype == DType::float32 && b.dtype == DType::float32, function,
                     ": a and b are of ", name_of(a.dtype), " and ", name_of(b.dtype),
                     "; expected float32");
  check_same_device(function, "b", b.device, a.device);
  check_same_device(function, "out", out.device, a.device);
  check(a.shape.columns == b.shape.columns && a.shape.batch == out.shape.batch &&
            (b.shape.batch == 1 || b.shape.batch == a.shape.batch) &&
            a.shape.rows == out.shape.rows && b.shape.rows == out.shape.columns,
        function, ": a is ", a.shape, ", b ", b.shape, " and out ", out.shape,
        "; expected [M, K], [N, K] and [M, N]");
  check(options.bias == nullptr || options.bias->shape.size() == out.shape.columns, function,
        ": bias has another length than rows of out");
}

}  // namespace

void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                      const AnyProductOptions& options, Stream stream) {
  constexpr const char* function = "gemm";
  check_product(function, a, b, out, options);
  const bool on_cuda = is_cuda(function, a);
  if constexpr (has_cuda) {
    if (on_cuda) {
      return cuda::multiply_float32(with_strides(a), with_strides(b), with_strides(out), options,
                                    stream);
    }
  }
  cpu::multiply_float32(with_strides(a), with_strides(b), with_strides(out), options);
}

void accumulate_products(const Buffer& a, const Buffer& b, const Buffer& out,
                         const AnyFormat& format, const AnyRoundingOptions& rounding,
                         const AnyProductOptions& options) {
  constexpr const char* function = "gemm";
  check_product(function, a, b, out, options);
  check_any_format(function, format);
  check(rounding.rounding != AnyRounding::stochastic, function,
        ": accumulate with stochastic rounding; expected another rounding");
  check<Unsupported>(a.device.type == DeviceType::cpu, function,
                     ": accumulate on a GPU; it is an emulation on the CPU; move the operands "
                     "there");
  cpu::accumulate_products(with_strides(a), with_strides(b), with_strides(out), format, rounding,
                           options);
}

}  // namespace mxkern
