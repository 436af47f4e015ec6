// cuda/any/quantize.cu: launches of the kernels that quantize by schemes known at run time.
#include <algorithm>

#include "cuda/any/backend.h"
#include "cuda/any/launch.h"
#include "cuda/any/narrow.h"
#include "cuda/quantize/tensor_amax.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/any/quantize.cuh"

namespace mxkern::cuda {
namespace {

// Blocks whose lanes fit into a warp, eight elements each.
bool lies_in_warps(const AnyScheme& scheme, const AnyOptions& options) {
  const std::int64_t block = scheme.block_columns;
  return scheme.block_rows == 1 && !options.square && !options.scale.mse && block >= 8 &&
         block <= 256 && (block & (block - 1)) == 0;
}

template <class T>
void find_amax(const char* function, const AnyBuffer& x, const AnyScheme& scheme,
               const AnyOptions& options, bool finite, float* found, Stream stream) {
  kernels::AnyAmaxParameters p = {};
  p.x = view_of(x);
  p.shape = x.shape;
  p.kind = scheme.scale.kind;
  p.rule = options.scale.rule;
  p.of_rows = finite && scheme.tensor_scales == TensorScales::row;
  p.finite = finite;
  p.found = found;
  if (!p.of_rows) {
    check_cuda(cudaMemsetAsync(found, 0, sizeof(float), handle_of(stream)), function,
               "clear the amax");
  }
  const std::int64_t lines = x.shape.batch * x.shape.rows;
  launch(function, kernels::any_amax_kernel<T>, grid_of(std::min<std::int64_t>(lines, 4096)),
         kernels::any_threads, 0, stream, p);
}

// out: codes and scales, or null; values: what they decode to, or null.
template <class T>
void run(const char* function, const AnyBuffer& x, const AnyScheme& scheme,
         const AnyBlockScaled* out, const AnyBuffer* values, const AnyOptions& options,
         Stream stream) {
  using Word = kernels::AnyWordOf<T>;
  kernels::AnyQuantizeParameters<Word> p = {};
  p.x = view_of(x);
  p.shape = x.shape;
  p.scheme = scheme;
  p.scaler = AnyScaler::of(scheme.element, scheme.scale, options.scale, scheme.has_tensor_scale());
  AnyRoundingOptions choice = options.rounding;
  if (choice.rounding == AnyRounding::stochastic) choice.rounding = AnyRounding::nearest;
  p.way = AnyWay<Word>::of(scheme.element, options.rounding);
  p.chooser = AnyWay<Word>::of(scheme.element, choice);
  p.decoder = AnyDecoder<Word>::of(scheme.element);
  p.scale_options = options.scale;
  p.square = options.square;
  p.is_stochastic = options.rounding.rounding == AnyRounding::stochastic;
  p.words_are_transposed = options.words_are_transposed;
  p.seed = options.seed;
  p.offset = options.offset;
  p.given_scales = options.scales;
  p.block_amaxes = options.block_amaxes;
  p.given_tensor_scale = options.tensor_scale;
  p.amax = options.amax;
  p.block =
      scheme.block_columns == 0 ? std::max<std::int64_t>(x.shape.columns, 1) : scheme.block_columns;
  p.group = options.square ? p.block : std::max<std::int64_t>(scheme.block_rows, 1);
  p.x_on_16 = starts_on_16_any(x);
  if (values != nullptr) {
    p.values = view_of(*values);
    p.values_on_16 = starts_on_16_any(*values);
  }
  if (out != nullptr) {
    p.codes = static_cast<std::uint8_t*>(out->codes);
    p.scales = out->scales;
    p.tensor_scale = out->tensor_scale;
    p.layout = out->scale_layout;
    const int word = scheme.element.stored_bits() == 4 ? 4 : 8;
    p.codes_on_word = rows_start_on(out->codes, scheme.code_row_bytes(x.shape.columns), word);
    if (out->scale_layout == ScaleLayout::swizzled) {
      check_cuda(cudaMemsetAsync(
                     out->scales, 0,
                     static_cast<std::size_t>(scheme.scale_bytes(out->shape, out->scale_layout)),
                     handle_of(stream)),
                 function, "clear the padding of scales");
    }
  }
  const bool finds =
      scheme.has_tensor_scale() && options.amax == nullptr && options.tensor_scale == nullptr;
  check(options.found_amax != nullptr || (!finds && !scheme.is_whole_tensor()), function,
        ": found_amax is null; expected memory for the amax that is found on the device");
  check<Unsupported>(
      !scheme.is_whole_tensor() || (!scheme.has_tensor_scale() && !options.scale.mse), function,
      ": one scale for the whole tensor with a tensor scale or the rule mse; "
      "expected neither on CUDA; leave them out, or quantize on the CPU");
  if (x.shape.size() == 0) return;
  if (finds) {
    if (!x.is_float64 && scheme.tensor_scales == TensorScales::tensor) {
      tensor_amax(function, x, options.found_amax, {}, false, stream);
    } else {
      find_amax<T>(function, x, scheme, options, true, options.found_amax, stream);
    }
    p.amax = options.found_amax;
  }
  if constexpr (std::is_same_v<Word, std::uint32_t>) {
    if (quantize_narrow(function, x, values, p, options, stream)) return;
  }
  const std::int64_t lines = x.shape.batch * x.shape.rows;
  const std::int64_t eighths = ceil_div(
      lines * ceil_div(x.shape.columns, 8) + lines * (p.block / 8 + 1), kernels::any_threads);
  const dim3 grid = grid_of(std::clamp<std::int64_t>(eighths, 1, 1 << 20));
  if (scheme.is_whole_tensor()) {
    find_amax<T>(function, x, scheme, options, false, options.found_amax, stream);
    p.whole_amax = options.found_amax;
    return launch(function, kernels::any_encode_kernel<T>, grid, kernels::any_threads, 0, stream,
                  p);
  }
  if (lies_in_warps(scheme, options)) {
    const auto kernel =
        out == nullptr ? kernels::any_rows_kernel<T, true> : kernels::any_rows_kernel<T, false>;
    return launch(function, kernel, grid, kernels::any_threads, 0, stream, p);
  }
  const std::int64_t blocks =
      x.shape.batch * ceil_div(x.shape.rows, p.group) * ceil_div(x.shape.columns, p.block);
  const int threads = p.group * p.block <= 1024 ? 32 : kernels::any_threads;
  launch(function, kernels::any_blocks_kernel<T>, grid_of(std::min<std::int64_t>(blocks, 1 << 20)),
         threads, 0, stream, p);
  if (out == nullptr) return;
  launch(function, kernels::any_encode_kernel<T>, grid, kernels::any_threads, 0, stream, p);
}

}  // namespace

void quantize_any(const AnyBuffer& x, const AnyBlockScaled& out, const AnyOptions& options,
                  Stream stream) {
  constexpr const char* function = "quantize";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out.codes", out.codes, out.device);
  check_device_pointer(function, "out.scales", out.scales, out.device);
  visit_any(x, [&](auto tag) {
    run<typename decltype(tag)::type>(function, x, out.scheme, &out, nullptr, options, stream);
  });
}

void fake_quantize_any(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                       const AnyOptions& options, Stream stream) {
  constexpr const char* function = "fake_quantize";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out", out.data, out.device);
  visit_any(x, [&](auto tag) {
    run<typename decltype(tag)::type>(function, x, scheme, nullptr, &out, options, stream);
  });
}

}  // namespace mxkern::cuda
